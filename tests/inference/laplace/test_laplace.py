"""The Laplace approximation against closed forms, explicit Jacobians, and everything that can go wrong with it."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoLaplaceApproximation
from torch import Tensor

from bnnzoo.core.fit_warnings import NotConvergedWarning
from bnnzoo.inference import MAP, JointModeWarning, Laplace, fit, log_marginal_likelihood
from bnnzoo.inference.laplace.family import LaplaceError
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


def test_agrees_with_pyros_own_laplace_approximation() -> None:
    model, data = cases()["eight_schools"]
    start = MAP(init=torch.tensor([[4.0, 1.0, 1.0, 0.0, 0.0, 0.0]]))
    with pytest.warns(JointModeWarning, match="'tau' only matters through 'eta'"):
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
    assert calls[0] == calls[1] < 25  # once more for each curvature and each start from the prior


def test_single_precision() -> None:
    target = linear_gaussian()
    torch.set_default_dtype(torch.float32)  # the model makes tensors of its own
    posterior = fit(target.model, Laplace(), *target.data, dtype=torch.float32)
    assert posterior.draws().dtype == torch.float32
    torch.testing.assert_close(posterior.covariance.dense().double(), target.covariance, rtol=1e-4, atol=1e-5)
