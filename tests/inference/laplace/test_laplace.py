"""The Laplace approximation against closed forms, explicit Jacobians, and everything that can go wrong with it."""

import json
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoLaplaceApproximation
from torch import Tensor
from torch.autograd.functional import hessian, jacobian
from torch.func import grad, jacrev, vmap

from bnnzoo.core.density import build_density
from bnnzoo.core.outputs import whitened_outputs
from bnnzoo.core.replay import replay
from bnnzoo.core.sites import ModelError
from bnnzoo.inference import MAP, Laplace, fit
from bnnzoo.inference.laplace.curvature import precision, sum_over_rows
from bnnzoo.inference.laplace.laplace import LaplaceError, NotConvergedWarning, log_marginal_likelihood
from bnnzoo.testing.isolation import leaves_no_trace
from bnnzoo.testing.targets import ill_conditioned, linear_gaussian, skewed
from tests.helpers.counting import Counting
from tests.helpers.densities import cases

SHORT = MAP(num_steps=200)


@pytest.mark.parametrize("curvature", ["ggn", "hessian"])
@pytest.mark.parametrize("target", [linear_gaussian(), ill_conditioned()], ids=lambda t: t.name)
def test_exact_on_linear_gaussian_models(curvature, target) -> None:
    posterior = fit(target.model, Laplace(curvature=curvature), *target.data)
    torch.testing.assert_close(posterior.loc, target.mean["w"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(posterior.covariance.dense(), target.covariance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(log_marginal_likelihood(posterior), target.log_evidence, rtol=1e-6, atol=1e-6)
    assert posterior.info.config["curvature"] == curvature


def test_hessian_in_unconstrained_space_has_the_closed_form() -> None:
    target = skewed()
    posterior = fit(target.model, Laplace(curvature="hessian"), *target.data)
    shape = (target.mean["rate"] / target.sd["rate"]) ** 2
    # log(rate) for rate ~ Gamma(a, b) has the mode log(a / b) and the curvature a there.
    torch.testing.assert_close(posterior.loc[0], target.mean["rate"].log(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(posterior.covariance.diagonal()[0], 1 / shape, rtol=1e-6, atol=0)


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


def test_agrees_with_pyros_own_laplace_approximation() -> None:
    model, data = cases()["eight_schools"]
    start = MAP(init=torch.tensor([[4.0, 1.0, 1.0, 0.0, 0.0, 0.0]]))
    ours = fit(model, Laplace(start, curvature="hessian"), *data)
    guide = AutoLaplaceApproximation(model)
    guide(*data)
    guide.loc.data = ours.loc.clone()
    pyros = guide.laplace_approximation(*data).get_posterior()
    torch.testing.assert_close(ours.covariance.dense(), pyros.covariance_matrix.detach(), rtol=1e-6, atol=1e-6)


def test_guide_works_in_pyros_own_tools() -> None:
    model, data = cases()["hierarchical"]
    posterior = fit(model, Laplace(SHORT), *data)
    drawn = Predictive(model, guide=posterior.as_guide(), num_samples=5)(data[0])
    assert drawn["obs"].shape == (5, 20)
    assert math.isfinite(Trace_ELBO(num_particles=5).loss(model, posterior.as_guide(), *data))


def test_bound_of_the_exact_posterior_is_the_evidence() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, Laplace(), *target.data)
    bound = -Trace_ELBO(num_particles=2).loss(target.model, posterior.as_guide(), *target.data)
    assert abs(bound - float(target.log_evidence)) < 1e-8  # without noise, since q is the posterior


def test_best_of_several_members_is_used() -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(1.0, 2.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(a**2, 0.5), obs=y)

    posterior = fit(model, Laplace(MAP(num_members=8), curvature="hessian"), torch.ones(10), seed=1)
    assert posterior.loc > 0.9


def test_indefinite_hessian_names_its_eigenvalue_and_the_way_out() -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(a**2, 1.0), obs=y)

    at_the_saddle = MAP(init=torch.zeros(1, 1))  # the gradient vanishes at 0, between the modes at -1 and 1
    sentence = r"most negative eigenvalue is -20, and 1 of 1 are not positive.*curvature='ggn'.*damping=40"
    with pytest.raises(LaplaceError, match=sentence):
        fit(model, Laplace(at_the_saddle, curvature="hessian"), torch.ones(10))
    with_ggn = fit(model, Laplace(at_the_saddle, curvature="ggn"), torch.ones(10))
    assert with_ggn.covariance.diagonal()[0] == pytest.approx(100.0)
    damped = fit(model, Laplace(at_the_saddle, curvature="hessian", damping=40.0), torch.ones(10))
    assert damped.covariance.diagonal()[0] > 0


def test_singular_ggn_names_the_prior() -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(b + 0 * a, 1.0), obs=y)

    with pytest.raises(LaplaceError, match=r"not positive definite.*proper prior"):
        fit(model, Laplace(MAP(init=torch.zeros(1, 2)), curvature="ggn"), torch.ones(10))


def test_mode_not_reached_is_said() -> None:
    target = linear_gaussian()
    hasty = Laplace(MAP(num_steps=1, polish_steps=0))
    with pytest.warns(NotConvergedWarning, match=r"gradient norm is [\d.]+, and the mode is about [\d.]+ posterior"):
        fit(target.model, hasty, *target.data)


def test_too_large_for_memory_names_the_bytes() -> None:
    target = linear_gaussian()
    with pytest.raises(LaplaceError, match=r"3 parameters needs 288 bytes, and there are 100. Use LastLayerLaplace"):
        fit(target.model, Laplace(max_bytes=100), *target.data)


def test_refuses_ggn_of_an_unreadable_likelihood() -> None:
    model, data = cases()["mixture"]
    with pytest.raises(ModelError, match=r"'obs' cannot be read: the family MixtureSameFamily.*curvature='hessian'"):
        fit(model, Laplace(SHORT, curvature="ggn"), *data)
    with pytest.raises(ValueError, match=r"damping=-1.0: write 0 or more"):
        fit(*(cases()["categorical"][:1]), Laplace(SHORT, damping=-1.0), *cases()["categorical"][1])


def test_reproducible_and_leaves_global_state_alone() -> None:
    target = linear_gaussian()
    with leaves_no_trace("Laplace"):
        first = fit(target.model, Laplace(SHORT), *target.data, seed=2)
    assert torch.equal(first.draws(), fit(target.model, Laplace(SHORT), *target.data, seed=2).draws())


def test_model_is_called_a_fixed_number_of_times() -> None:
    target = linear_gaussian()
    calls = []
    for num_steps in (10, 1000):
        model = Counting(target.model)
        fit(model, Laplace(MAP(num_steps=num_steps)), *target.data)
        calls.append(model.calls)
    assert calls[0] == calls[1] < 20


def test_single_precision() -> None:
    target = linear_gaussian()
    torch.set_default_dtype(torch.float32)  # the model makes tensors of its own
    posterior = fit(target.model, Laplace(), *target.data, dtype=torch.float32)
    assert posterior.draws().dtype == torch.float32
    torch.testing.assert_close(posterior.covariance.dense().double(), target.covariance, rtol=1e-4, atol=1e-5)
