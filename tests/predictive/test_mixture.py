"""Mixtures predict by their weights, and mixtures of Laplace approximations component by component."""

from dataclasses import replace

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.calibration import crps, nll
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.outputs import linearized
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.predictive import posterior_predictive, predict
from bnnzoo.uncertainty import decompose
from tests.helpers.densities import cases
from tests.helpers.exact import narrow_posterior

WEIGHTS, MEANS, SD, NUM_DRAWS = np.array([0.2, 0.8]), np.array([-1.0, 1.0]), 0.3, 20_000
Y = torch.tensor([-2.0, -0.5, 0.3, 1.7])
INFO = FitInfo("iid", method="Mixture", seed=2)


def location(y):
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.fixture(scope="module")
def tree():
    density = build_density(location, Y)
    components = tuple(Gaussian(density, INFO, torch.tensor([m]), Diagonal(torch.tensor([SD]))) for m in MEANS)
    mixture = Mixture(density, INFO, components, torch.tensor(WEIGHTS).log())
    return posterior_predictive(mixture, Y, num_draws=NUM_DRAWS)


def normal(y, mean, variance):
    return np.exp(-0.5 * (y - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def within(found, exact, draws_sd, standard_errors=4):
    return np.all(np.abs(found - exact) < standard_errors * draws_sd / np.sqrt(NUM_DRAWS))


def test_uncertainty_is_that_of_the_mixture(tree):
    mean = WEIGHTS @ MEANS
    epistemic = WEIGHTS @ (MEANS**2 + SD**2) - mean**2
    found = decompose(tree)
    assert within(found["epistemic"].to_numpy(), epistemic, np.sqrt(2) * epistemic)
    assert np.allclose(found["aleatoric"], 1.0)
    assert within(tree["posterior"]["mu"].mean().item(), mean, np.sqrt(epistemic))


def test_scores_are_those_of_the_mixture(tree):
    y = Y.numpy()
    densities = normal(y[:, None], MEANS, 1 + SD**2) @ WEIGHTS
    assert within(np.exp(-nll(tree).to_numpy()), densities, 0.4)
    grid = np.linspace(-12.0, 12.0, 20_001)
    cdf = np.cumsum(normal(grid[:, None], MEANS, 1 + SD**2) @ WEIGHTS) * (grid[1] - grid[0])
    exact = [np.trapezoid((cdf - (grid >= value)) ** 2, grid) for value in y]
    assert within(crps(tree).to_numpy(), exact, 1.5)


def test_loo_weighs_the_components(tree):
    y, rest = Y.numpy()[:, None], 1 - SD**2
    inverse = np.sqrt(2 * np.pi / rest) * np.exp(0.5 * (y - MEANS) ** 2 / rest) @ WEIGHTS
    found = az.loo(tree, pointwise=True)
    assert np.allclose(found.elpd_i, -np.log(inverse), atol=0.05)


def laplace(name):
    model, data = cases()[name]
    one = narrow_posterior(model, *data)
    return replace(one, linearize_at=one.loc), data


@pytest.mark.parametrize("log_weights", [None, torch.tensor([-3.0])])
def test_a_mixture_of_one_predicts_what_its_component_predicts(log_weights):
    component, data = laplace("regression")
    mixture = Mixture(component.density, component.info, (component,), log_weights)
    assert predict(mixture, *data, num_draws=30).identical(predict(component, *data, num_draws=30))


@pytest.mark.parametrize("log_weights", [None, torch.tensor([0.25, 0.75]).log()])
@pytest.mark.parametrize("chunk_size", [None, 50])
def test_each_component_is_linearised_at_its_own_mode(log_weights, chunk_size):
    component, data = laplace("regression")
    far = component.loc + 0.5
    other = replace(component, loc=far, linearize_at=far)
    mixture = Mixture(component.density, component.info, (component, other), log_weights)
    found = predict(mixture, *data, num_draws=30, chunk_size=chunk_size)["conditional"]["mean"].to_numpy()
    draws, members = mixture.draws(30), mixture.members(30)
    for chain, draw in np.ndindex(*members.shape):
        mode = mixture.components[members[chain, draw]].loc
        expected = linearized(component.density, mode).conditional(draws[chain, draw], *data)["mean"]
        assert np.allclose(found[chain, draw], expected)


def test_a_mixture_can_be_predicted_without_linearisation():
    component, data = laplace("regression")
    mixture = Mixture(component.density, component.info, (component, component), torch.tensor([0.25, 0.75]).log())
    found = predict(mixture, *data, num_draws=10, linearized=False)["conditional"]["mean"].to_numpy()
    expected = component.density.conditional(mixture.draws(10)[0, 3], *data)["mean"]
    assert np.allclose(found[0, 3], expected)


def test_components_that_were_not_linearised_may_be():
    component, data = laplace("regression")
    plain = replace(component, linearize_at=None)
    mixture = Mixture(plain.density, plain.info, (plain, plain))
    found = predict(mixture, *data, num_draws=5, linearized=True)["conditional"]["mean"].to_numpy()
    expected = linearized(plain.density, plain.loc).conditional(mixture.draws(5)[1, 2], *data)["mean"]
    assert np.allclose(found[1, 2], expected)
