"""Curvatures against explicit Jacobians, loops over rows, enumeration and Monte Carlo."""

import json
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian
from torch.func import grad, jacrev, vmap

from bnnzoo.core.fit_warnings import UnreadableLikelihoodWarning
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.outputs import whitened_outputs
from bnnzoo.core.model.replay import replay
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import MAP, NUTS, Laplace, LowRankLaplace, fit
from bnnzoo.inference.laplace.curvature import Curvature, MonteCarloFisher, precision, sum_over_rows
from bnnzoo.inference.laplace.hessian_products import hessian_diagonal
from bnnzoo.inference.laplace.low_rank import precision_product
from bnnzoo.predictive import predict
from tests.helpers.densities import cases
from tests.helpers.likelihoods import LIKELIHOODS, split

SHORT = MAP(num_steps=200)
NO_SHAPE = torch.Size()


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


@pytest.mark.parametrize("name", ["categorical", "correlation", "mixture"])
def test_every_likelihood_that_can_be_read_has_gauss_newton_curvature(name: str) -> None:
    model, data = cases()[name]
    posterior = fit(model, Laplace(SHORT, curvature="ggn"), *data)
    assert posterior.info.config["curvature"] == "ggn"
    assert torch.equal(posterior.linearize_at, posterior.loc)
    json.dumps(dict(posterior.info.config))


SENTENCE = r"The exact Hessian replaces the Gauss-Newton matrix.*{}.*predictions come from the model itself"


def test_exact_hessian_of_a_factor_is_warned_about() -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.factor("rows", -((y - a) ** 2))

    y = torch.randn(20)
    with pytest.warns(UnreadableLikelihoodWarning, match=SENTENCE.format("pyro.factor site 'rows'")):
        posterior = fit(model, LowRankLaplace(1, SHORT), y)
    assert posterior.info.config["curvature"] == "hessian"
    wanted = fit(model, Laplace(SHORT), y)  # no warning: without a network the Hessian comes first
    torch.testing.assert_close(wanted.covariance.dense(), posterior.covariance.dense())
    with pytest.raises(
        ModelError, match=r"pyro.factor site 'rows', which has no family\. Write curvature='hessian' or curvature=Mo"
    ):
        fit(model, Laplace(SHORT, curvature="ggn"), y)


class Shifted(dist.TorchDistribution):
    """A normal distribution whose location comes in by a transform that declares no parameters."""

    arg_constraints = {"scale": dist.constraints.positive}
    support = dist.constraints.real

    def __init__(self, shift: object, scale: Tensor) -> None:
        self.shift, self.scale = shift, scale
        super().__init__(scale.shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return dist.Normal(self.shift(), self.scale, validate_args=False).log_prob(value)

    def sample(self, sample_shape: torch.Size = NO_SHAPE) -> Tensor:
        return torch.randn(sample_shape + self.batch_shape)


def test_likelihood_whose_parameters_are_hidden_is_warned_about() -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", Shifted(lambda: a, scale.expand(len(y))), obs=y)

    with pytest.warns(UnreadableLikelihoodWarning, match=SENTENCE.format("site 'y' cannot be read: something besides")):
        fit(model, LowRankLaplace(1, SHORT), torch.randn(20))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "ordinal" else name for name in LIKELIHOODS]
)
def test_general_ggn_is_the_fisher_information_by_monte_carlo(name: str) -> None:
    data, _ = split(name)
    density = build_density(LIKELIHOODS[name], *data)
    theta = 0.3 * torch.randn(density.num_params)

    def diagonal(curvature: Curvature) -> Tensor:
        return sum_over_rows(density, theta, curvature, lambda root: (root**2).sum(0))

    drawn = torch.stack([diagonal(MonteCarloFisher(100, seed)) for seed in range(10)])
    # 512 draws a row against 1000: Monte Carlo standard errors of both
    error = drawn.std(0) * (1 / 10 + 100 / 512) ** 0.5
    assert ((diagonal("ggn") - drawn.mean(0)).abs() <= 6 * error + 1e-9).all()


def test_computed_roots_give_the_same_curvature_in_blocks_and_for_some_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = split("mixture_density_network")
    density = build_density(LIKELIHOODS["mixture_density_network"], *data)
    theta = 0.3 * torch.randn(density.num_params)
    whole, index = precision(density, theta, "ggn"), torch.arange(5, 20)
    torch.testing.assert_close(precision(density, theta, "ggn", index), whole[index[:, None], index])
    torch.testing.assert_close(precision_product(density, theta, "ggn")(theta), whole @ theta)
    monkeypatch.setattr("bnnzoo.inference.laplace.curvature.MAX_ELEMENTS", 7 * 6 * density.num_params)
    torch.testing.assert_close(precision(density, theta, "ggn"), whole)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The model could not be traced")
@pytest.mark.filterwarnings("ignore:The mode was not reached")
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_held_out_density_is_within_a_factor_of_two_of_nuts(name: str) -> None:
    """Expected log predictive densities per observation, which may be negative, differ by less than log 2."""
    train, new = split(name)
    model = LIKELIHOODS[name]
    laplace = fit(model, Laplace(MAP(num_steps=500, num_members=2)), *train)
    nuts = fit(model, NUTS(num_chains=1, num_warmup=200, num_draws=200), *train)
    assert laplace.info.config["curvature"] == "ggn"
    assert held_out(nuts, new) - held_out(laplace, new) < math.log(2)


def held_out(posterior: Posterior, new: tuple[Tensor, ...]) -> float:
    """Return the mean over held-out rows of the log predictive density, averaged over 200 draws."""
    (found,) = predict(posterior, *new, num_draws=200)["predictions_log_likelihood"].data_vars.values()
    draws = torch.from_numpy(found.to_numpy()).flatten(0, 1)
    return float((draws.logsumexp(0) - math.log(len(draws))).mean())


def test_hessian_diagonal_of_a_coupled_function() -> None:
    matrix = torch.randn(5, 5)
    found = hessian_diagonal(lambda t: 0.5 * t @ (matrix + matrix.T) @ t + (t**3).sum(), torch.ones(5))
    torch.testing.assert_close(found, 2 * matrix.diagonal() + 6.0)
