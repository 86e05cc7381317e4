"""The extracted density against Pyro's own, against finite differences, and against itself batched and compiled."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from torch import Tensor

from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.core.lowering import LoweringWarning
from bnnzoo.core.minibatch import DataError
from bnnzoo.core.sites import ModelError
from tests.core.zoo_of_densities import cases

NAMES = list(cases())


def density_of(name: str) -> LogDensity:
    model, data = cases()[name]
    return build_density(model, *data)


def points(density: LogDensity, num: int = 3) -> Tensor:
    return torch.randn(num, density.num_params, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", NAMES)
def test_equals_minus_pyros_potential(name: str) -> None:
    model, data = cases()[name]
    density = density_of(name)
    _, potential, *_ = initialize_model(model, data)
    for theta in points(density):
        unconstrained = {site.name: site.unflatten(theta) for site in density.sites}
        expected = -potential(unconstrained)
        torch.testing.assert_close(density.log_joint(theta, *data), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_matches_finite_differences(name: str) -> None:
    model, data = cases()[name]
    density = density_of(name)
    theta = 0.3 * points(density, 1)
    _, gradient = density.value_and_grad(theta, *data)
    steps = 1e-5 * torch.eye(density.num_params)
    ahead = torch.stack([density.log_joint(theta[0] + step, *data) for step in steps])
    behind = torch.stack([density.log_joint(theta[0] - step, *data) for step in steps])
    torch.testing.assert_close(gradient[0], (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_batched_equals_looped(name: str) -> None:
    _, data = cases()[name]
    density = density_of(name)
    theta = points(density)
    values, gradients = density.value_and_grad(theta, *data)
    for i, row in enumerate(theta):
        value, gradient = density.value_and_grad(row[None], *data)
        torch.testing.assert_close(values[i], value[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradients[i], gradient[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_prior_and_likelihood_add_up(name: str) -> None:
    _, data = cases()[name]
    density = density_of(name)
    theta = points(density, 1)[0]
    scale = 0.5 if name == "masked_and_scaled" else 1.0
    parts = density.log_prior(theta) + scale * density.log_likelihood(theta, *data).sum()
    torch.testing.assert_close(parts, density.log_joint(theta, *data), rtol=1e-12, atol=1e-12)
