"""Data and models that the user changes after a fit do not change the posterior, or a warning says so."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelWarning
from bnnzoo.core.reading.changes import remember_model, warn_of_changed_model

X, Y = torch.linspace(-1, 1, 20, dtype=torch.float64), torch.linspace(-1, 2, 20, dtype=torch.float64)


def model(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def in_a_mapping(data: dict[str, Tensor]) -> None:
    model(data["x"], data["y"])


@contextmanager
def quiet() -> Iterator[None]:
    with catch_warnings():
        simplefilter("error")
        yield


@pytest.mark.parametrize(
    "change",
    [lambda x: x.mul_(5), lambda x: x.data.mul_(5), lambda x: np.multiply(x.numpy(), 5, out=x.numpy())],
    ids=["in place", "behind autograd", "as an array"],
)
def test_what_was_fitted_does_not_change_with_the_users_own_tensors(change: Callable[[Tensor], Any]) -> None:
    x = X.clone()
    posterior = bz.fit(model, bz.Laplace(), x, Y, progress=False, dtype=torch.float64)
    within = bz.fit(in_a_mapping, bz.Laplace(), {"x": x, "y": Y}, progress=False, dtype=torch.float64)
    expected = bz.posterior_predictive(posterior, X, Y)["log_likelihood"]["y"]
    change(x)
    np.testing.assert_array_equal(bz.posterior_predictive(posterior, X, Y)["log_likelihood"]["y"], expected)
    with pytest.raises(ValueError, match="argument 'x' differs from what the fit got"):
        bz.posterior_predictive(posterior, x, Y)
    assert torch.equal(within.density.data[0]["x"], X)


class Switched(nn.Module):
    """A network with everything that is no parameter and may change."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(1, 1), torch.tanh
        self.table, self.plain = {"factor": 1.0}, torch.tensor(1.0, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.table["factor"] * self.plain * self.activation(self.linear(x))


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "activation", torch.exp),
        lambda net: net.table.update(factor=2.0),
        lambda net: net.plain.mul_(2),
        lambda net: net.register_forward_hook(lambda module, given, out: 2 * out),
    ],
    ids=["function", "dict", "tensor", "hook"],
)
def test_predictions_through_a_network_that_has_changed_warn(change: Callable[[Switched], Any]) -> None:
    net = Switched()
    supervised = bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.gaussian(1.0))
    method = bz.MAP(num_steps=2)
    posterior = bz.fit(supervised, method, X[:, None], Y, progress=False, dtype=torch.float64)
    with quiet():
        bz.predict(posterior, X[:3, None])
    change(net)
    for call in (lambda: bz.predict(posterior, X[:3, None]), lambda: bz.to_datatree(posterior)):
        with pytest.warns(ModelWarning, match=r"no longer what was fitted: the log likelihood .* change a copy"):
            call()
    again = bz.fit(supervised, method, X[:, None], Y, progress=False, dtype=torch.float64)
    with quiet():
        bz.predict(again, X[:3, None])


def test_a_tensor_of_a_closure_is_watched_also_where_the_model_needs_all_rows() -> None:
    x = X.clone()
    density = build_density(lambda y: model(x, y), Y, dtype=torch.float64)
    with quiet():
        warn_of_changed_model(density)  # of a density that no fit has seen nothing is known
        remember_model(density)
        warn_of_changed_model(density)
    x.mul_(2)
    with pytest.warns(ModelWarning, match="no longer what was fitted"):
        warn_of_changed_model(density)


def test_a_loaded_posterior_is_watched_too(tmp_path: Any) -> None:
    net = Switched()
    supervised = bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.gaussian(1.0))
    bz.fit(supervised, bz.MAP(num_steps=2), X[:, None], Y, progress=False, dtype=torch.float64).save(tmp_path / "a.bnn")
    loaded = bz.load(tmp_path / "a.bnn", supervised, X[:, None], Y)
    net.activation = torch.exp
    with pytest.warns(ModelWarning, match="no longer what was fitted"):
        bz.predict(loaded, X[:3, None])
