"""Models that fill tensors in place run in batches, traced, like all others."""

import warnings
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.filling import FillingModel
from bnnzoo.engine.value_and_grad import looped_value_and_grad
from tests.helpers.densities import cases

X = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64)


def autoregression(x: Tensor) -> None:
    """A tensor of zeros filled entry by entry, and a copy of the data that is changed in place."""
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    path = torch.zeros(len(x))
    for i in range(1, len(x)):
        path[i] = a * x[i - 1]
    shifted = x.clone()
    shifted[0] = a
    shifted += path
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(shifted, 0.5), obs=x)


def ordered() -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    model, data = cases()["ordered"]
    return model, tuple(value.double() if value.is_floating_point() else value for value in data)


@pytest.mark.parametrize("case", [ordered(), (autoregression, (X,))], ids=["OrderedLogistic", "autoregression"])
def test_such_a_density_is_traced_and_equal_to_pyros(case: tuple[Callable[..., Any], tuple[Tensor, ...]]) -> None:
    model, data = case
    density = build_density(model, *data, dtype=torch.float64)
    assert isinstance(density.model, FillingModel)
    theta = torch.randn(4, density.num_params, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values, gradients = density.value_and_grad(theta, *data)
    assert density.value_and_grad.specialize(theta, *data).how == "traced"
    expected = looped_value_and_grad(density.log_joint)(theta, *data)
    torch.testing.assert_close(gradients, expected[1], rtol=1e-11, atol=1e-11)
    torch.set_default_dtype(torch.float64)
    try:
        _, potential, *_ = initialize_model(model, data)
        theirs = torch.stack([-potential(density.unconstrained(point)) for point in theta])
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(values, theirs, rtol=1e-12, atol=1e-12)


def test_other_models_are_left_as_they_are() -> None:
    model, data = cases()["regression"]
    assert build_density(model, *data).model is model


@pytest.mark.parametrize(
    "method",
    [
        bz.MeanFieldVI(num_steps=50),
        pytest.param(bz.Laplace(), marks=pytest.mark.slow),
        bz.NUTS(num_chains=2, num_warmup=20, num_draws=20),
    ],
    ids=lambda m: type(m).__name__,
)
def test_methods_and_predictions_need_no_loop(method: Any) -> None:
    model, data = ordered()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not be traced")
        posterior = bz.fit(model, method, *data, seed=0, dtype=torch.float64, progress=False)
        tree = bz.predict(posterior, data[0], num_draws=20)
    assert tree["conditional"]["probs"].sizes["obs_id"] == len(data[0])
