"""Models that are not functions of their latent values are refused before anything is fitted."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.consistency import ModelWarning, refuse_inconsistent
from bnnzoo.core.density import build_density
from bnnzoo.core.sites import ModelError
from tests.helpers.densities import cases

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0]


def refuse(model, *data) -> None:
    refuse_inconsistent(build_density(model, *data))


def weights() -> Tensor:
    return pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))


@pytest.mark.parametrize("name", list(cases()))
def test_sound_models_pass(name: str) -> None:
    model, data = cases()[name][:2]
    refuse(model, *data)


@pytest.mark.parametrize("plate", [True, False])
def test_a_forgotten_squeeze_is_refused(plate: bool) -> None:
    def model(x, y=None):
        f = (x @ weights())[:, None]
        if not plate:
            return pyro.sample("y", dist.Normal(f, 1.0), obs=y)
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(
        ModelError,
        match=r"Site 'y' observes 40 values of shape \[40\], but its distribution has shape \[40, (1|40)\].*1600 terms.*squeeze",
    ):
        refuse(model, X, Y)


def test_chance_outside_of_sites_is_refused() -> None:
    def model(x, y=None):
        f = x @ weights() + torch.randn(len(x))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(
        ModelError, match=r"site 'y' at one and the same point is .* draws random numbers outside of pyro"
    ):
        refuse(model, X, Y)


def test_functional_dropout_is_refused() -> None:
    def model(x, y=None):
        f = torch.nn.functional.dropout(x, 0.5) @ weights()
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(ModelError, match=r"functional dropout in training mode"):
        refuse(model, X, Y)


def test_a_site_that_comes_and_goes_is_refused() -> None:
    runs = iter(range(100))

    def model(x, y=None):
        w = weights()
        if next(runs) % 2:
            pyro.sample("extra", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    with pytest.raises(ModelError, match=r"Site 'extra' is sampled in some runs of the model and not in others"):
        refuse(model, X, Y)


def test_a_gradient_lost_in_numpy_is_refused() -> None:
    def model(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        m = torch.as_tensor(np.tanh(mu.detach().numpy()))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(m, 0.1), obs=y)

    with pytest.raises(ModelError, match=r"gradient of the log density is not its derivative.*\.detach\(\)"):
        refuse(model, torch.full((20,), 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_gradients_of_steep_and_flat_densities_pass(dtype: torch.dtype, scale: float) -> None:
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(3, dtype=dtype), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, scale), obs=y)

    refuse_inconsistent(build_density(model, X.to(dtype), Y.to(dtype), dtype=dtype))


def test_rows_that_are_one_event_are_pointed_out() -> None:
    def model(x, y=None):
        pyro.sample("y", dist.Normal(x @ weights(), 1.0).to_event(1), obs=y)

    with pytest.warns(ModelWarning, match=r"Site 'y' is one observation of shape \[40\], because \.to_event\(\)"):
        refuse(model, X, Y)
