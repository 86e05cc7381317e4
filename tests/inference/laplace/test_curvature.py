"""Curvatures against explicit Jacobians, loops over rows, enumeration and Monte Carlo."""

import json

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian
from torch.func import grad, jacrev, vmap

from bnnzoo.core.density import build_density
from bnnzoo.core.outputs import whitened_outputs
from bnnzoo.core.replay import replay
from bnnzoo.core.sites import ModelError
from bnnzoo.inference import MAP, Laplace, fit
from bnnzoo.inference.laplace.curvature import precision, sum_over_rows
from bnnzoo.inference.laplace.hessian import hessian_diagonal
from tests.helpers.densities import cases

SHORT = MAP(num_steps=200)


@pytest.mark.parametrize("name", ["regression", "two_sites", "hierarchical", "mixture", "eight_schools"])
def test_exact_hessian_equals_automatic_differentiation(name: str) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    theta = 0.3 * torch.randn(density.num_params)
    expected = -hessian(lambda t: density.log_joint(t, *data), theta)
    torch.testing.assert_close(precision(density, theta, "hessian"), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["categorical", "bernoulli", "poisson", "masked_and_scaled", "convolutional"])
def test_ggn_equals_loops_over_rows(name: str) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    theta = 0.3 * torch.randn(density.num_params)
    active = density.active
    found = sum_over_rows(density, theta, "ggn", lambda root: root.mT @ root)
    expected = torch.zeros_like(found)
    for row in range(len(data[0])):
        one = tuple(value[row : row + 1] for value in data)
        root = jacobian(lambda t, one=one: whitened_outputs(density, active, t, *one)[0], theta)
        expected += root.mT @ root
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_ggn_is_the_fisher_information_by_enumeration() -> None:
    model, (x, labels) = cases()["categorical"]
    density = build_density(model, x, labels)
    theta = 0.5 * torch.randn(density.num_params)
    probs = density.conditional(theta, x)["probs"]
    expected = torch.zeros(density.num_params, density.num_params)
    for label in range(3):
        scores = jacrev(lambda t, k=label: density.log_likelihood(t, x, torch.full((20,), k)))(theta)
        expected += scores.mT @ (probs[:, label, None] * scores)
    found = sum_over_rows(density, theta, "ggn", lambda root: root.mT @ root)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["heteroscedastic", "hierarchical", "regression"])
def test_ggn_is_the_fisher_information_by_monte_carlo(name: str) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    theta = 0.3 * torch.randn(density.num_params)
    num_draws = 4000
    y = replay(model, density.constrain(theta), data, ("obs",), density.device)["obs"]["fn"].sample((num_draws,))
    found = sum_over_rows(density, theta, "ggn", lambda root: root.mT @ root)
    score = grad(lambda t, y: density.log_likelihood(t, data[0], y).sum())
    squares = vmap(score, (None, 0))(theta, y) ** 2
    error = squares.std(0) / num_draws**0.5
    assert ((squares.mean(0) - found.diagonal()).abs() <= 5 * error).all()


def test_empirical_fisher_is_the_sum_of_outer_products_of_gradients() -> None:
    model, data = cases()["poisson"]
    density = build_density(model, *data)
    theta = 0.3 * torch.randn(density.num_params)
    expected = torch.zeros(density.num_params, density.num_params)
    for row in range(20):
        one = tuple(value[row : row + 1] for value in data)
        gradient = jacobian(lambda t, one=one: density.log_likelihood(t, *one)[0], theta)
        expected += torch.outer(gradient, gradient)
    found = sum_over_rows(density, theta, "empirical_fisher", lambda root: root.mT @ root)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_rows_in_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = cases()["categorical"]
    density = build_density(model, *data)
    theta = 0.3 * torch.randn(density.num_params)
    whole = precision(density, theta, "ggn")
    monkeypatch.setattr("bnnzoo.inference.laplace.curvature.MAX_ELEMENTS", 7 * 3 * density.num_params)
    torch.testing.assert_close(precision(density, theta, "ggn"), whole)


def test_model_that_mixes_rows_is_differentiated_whole() -> None:
    def model(x: Tensor, y: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(slope * (x - x.mean()), 1.0), obs=y)

    x, y = torch.randn(30), torch.randn(30)
    posterior = fit(model, Laplace(curvature="ggn"), x, y)
    exact = 1 + ((x - x.mean()) ** 2).sum()
    torch.testing.assert_close(posterior.covariance.diagonal()[0], 1 / exact)


@pytest.mark.parametrize(("name", "curvature"), [("categorical", "ggn"), ("correlation", "hessian")])
def test_curvature_is_chosen_by_what_can_be_read(name: str, curvature: str) -> None:
    model, data = cases()[name]
    posterior = fit(model, Laplace(SHORT), *data)
    assert posterior.info.config["curvature"] == curvature
    json.dumps(dict(posterior.info.config))


def test_refuses_ggn_of_an_unreadable_likelihood() -> None:
    model, data = cases()["mixture"]
    with pytest.raises(ModelError, match=r"'obs' cannot be read: the family MixtureSameFamily.*curvature='hessian'"):
        fit(model, Laplace(SHORT, curvature="ggn"), *data)
    with pytest.raises(ValueError, match=r"Laplace\(damping=-1.0\): write 0 or more"):
        fit(*(cases()["categorical"][:1]), Laplace(SHORT, damping=-1.0), *cases()["categorical"][1])


def test_hessian_diagonal_of_a_coupled_function() -> None:
    matrix = torch.randn(5, 5)
    found = hessian_diagonal(lambda t: 0.5 * t @ (matrix + matrix.T) @ t + (t**3).sum(), torch.ones(5))
    torch.testing.assert_close(found, 2 * matrix.diagonal() + 6.0)
