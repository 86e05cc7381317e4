"""Hierarchical Laplace against the marginal likelihood of a linear model, which is known for every prior scale."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from bnnzoo.core.fit_warnings import NotConvergedWarning
from bnnzoo.core.model.density import build_density
from bnnzoo.core.parameters.hierarchy import given_sites, hyperparameter_sites
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import (
    MAP,
    DiagonalLaplace,
    HierarchicalLaplace,
    Laplace,
    LowRankLaplace,
    fit,
    log_marginal_likelihood,
)
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import predict
from tests.helpers.densities import cases

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X @ torch.tensor([2.0, -1.0, 0.5, 1.5], dtype=torch.float64) + 0.5 * torch.randn(
    30, generator=torch.Generator().manual_seed(1), dtype=torch.float64
)
SHORT = MAP(num_steps=20)


def linear(x: Tensor, y: Tensor | None = None) -> None:
    scale = pyro.sample("scale", dist.HalfNormal(x.new_tensor(2.0)))
    w = pyro.sample("w", dist.Normal(x.new_zeros(4), scale).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)


def exact_log_marginal(log_scale: float) -> float:
    """Return log p(y, log scale), Jacobian included."""
    scale = math.exp(log_scale)
    covariance = scale**2 * X @ X.mT + 0.25 * torch.eye(30)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(30), covariance).log_prob(Y)
    return float(evidence + torch.distributions.HalfNormal(2.0).log_prob(torch.tensor(scale)) + log_scale)


@pytest.mark.parametrize("laplace", [Laplace(SHORT), LowRankLaplace(4, SHORT)], ids=["dense", "low rank"])
def test_finds_the_mode_of_the_exact_marginal(laplace) -> None:
    posterior = fit(linear, HierarchicalLaplace(laplace, integrate=False), X, Y)
    exact = minimize_scalar(lambda s: -exact_log_marginal(s), bracket=(-1.0, 1.0))
    log_scale = float(posterior.loc[0])
    assert log_scale == pytest.approx(exact.x, abs=5e-3)
    assert float(log_marginal_likelihood(posterior)) == pytest.approx(exact_log_marginal(log_scale), abs=1e-6)
    covariance = torch.linalg.inv(X.mT @ X / 0.25 + torch.eye(4) * math.exp(-2 * log_scale))
    torch.testing.assert_close(posterior.covariance.covariance.dense(), covariance, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(posterior.loc[1:], covariance @ X.mT @ Y / 0.25, rtol=1e-6, atol=1e-6)
    assert torch.equal(posterior.draws(3)[..., 0], posterior.loc[0].expand(1, 3))


def test_joint_density_has_no_mode_but_the_marginal_has() -> None:
    density = build_density(linear, X, Y)
    towards_zero = [
        float(density.log_joint(torch.tensor([s, 0.0, 0.0, 0.0, 0.0]), X, Y)) for s in (-10.0, -50.0, -100.0)
    ]
    assert towards_zero[0] < towards_zero[1] < towards_zero[2]
    assert exact_log_marginal(-10.0) > exact_log_marginal(-50.0) > exact_log_marginal(-100.0)


@pytest.mark.slow
def test_noise_scale_may_be_a_hyperparameter() -> None:
    net = torch.nn.Linear(4, 1, bias=False)
    model = supervised(net, priors.layerwise(), likelihoods.gaussian())
    method = HierarchicalLaplace(Laplace(SHORT), hyperparameters=("net.weight.scale", "sigma"), tolerance=0.05)
    posterior = fit(model, method, X, Y)
    values = posterior.density.constrain(posterior.draws(4))
    assert values["sigma"].std() == 0 and values["net.weight"].std() > 0
    assert float(values["sigma"].mean()) == pytest.approx(0.5, rel=0.3)  # the truth; its sd is about a seventh of it
    tree = predict(posterior, X, num_draws=5)
    assert tree["predictions"].sizes["obs_id"] == 30


def test_sites_that_set_priors_are_found() -> None:
    model = supervised(mlp(2, (3,)), priors.layerwise(), likelihoods.gaussian())
    x, y = torch.randn(10, 2), torch.randn(10)
    density = build_density(model, x, y)
    weights = [site.name for site in density.sites if site.is_weight]
    assert sorted(hyperparameter_sites(density)) == sorted(f"{name}.scale" for name in weights)
    plain = build_density(supervised(mlp(2, (3,)), priors.normal(1.0), likelihoods.gaussian()), x, y)
    assert hyperparameter_sites(plain) == ()


def test_density_given_sites_is_the_joint_less_their_prior() -> None:
    density = build_density(linear, X, Y)
    theta = torch.randn(5)
    some = given_sites(density, {"scale": theta[0].exp()})
    prior = torch.distributions.HalfNormal(2.0).log_prob(theta[0].exp()) + theta[0]
    torch.testing.assert_close(some.log_joint(theta[1:], X, Y), density.log_joint(theta, X, Y) - prior)
    assert (some.num_data, some.observed) == (30, ("y",))


@pytest.mark.slow
def test_without_hyperparameters_it_is_the_method_inside() -> None:
    model, data = cases()["categorical"]
    plain = fit(model, DiagonalLaplace(SHORT), *data)
    same = fit(model, HierarchicalLaplace(DiagonalLaplace(SHORT)), *data)
    torch.testing.assert_close(plain.loc, same.loc, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(plain.covariance.scale, same.covariance.scale, rtol=1e-6, atol=1e-6)


def test_warns_when_the_search_ends_early() -> None:
    with pytest.warns(NotConvergedWarning, match=r"had not converged after max_fits=3. Write a larger max_fits"):
        fit(linear, HierarchicalLaplace(Laplace(SHORT), max_fits=3), X, Y)


def test_refusals() -> None:
    for method, sentence in (
        (HierarchicalLaplace(MAP()), r"HierarchicalLaplace\(laplace=MAP\(\)\): write Laplace\(\) or one like it"),
        (HierarchicalLaplace(tolerance=0.0), r"HierarchicalLaplace\(tolerance=0.0\): write a positive number"),
        (HierarchicalLaplace(max_fits=0), r"HierarchicalLaplace\(max_fits=0\): write 1 or more"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fit(linear, method, X, Y)
    with pytest.raises(ModelError, match=r"names every latent site \(scale, w\); leave out"):
        fit(linear, HierarchicalLaplace(hyperparameters=("*",)), X, Y)
    for unknown in ("nope", ("scale", "nope")):
        with pytest.raises(
            ModelError, match=r"hyperparameters='nope' fits no latent site of the model \(latent sites: scale, w\)"
        ):
            fit(linear, HierarchicalLaplace(hyperparameters=unknown), X, Y)
    many = supervised(torch.nn.Linear(4, 30), priors.horseshoe(), likelihoods.categorical())
    with pytest.raises(ModelError, match=r"searches 50 hyperparameters or fewer, and .*local_scale.* have 152"):
        fit(many, HierarchicalLaplace(), X, torch.arange(30))


@pytest.mark.slow
def test_every_optimisation_of_a_network_reaches_its_mode_in_few_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator)
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * torch.randn(60, generator=generator)
    model = supervised(mlp(2, (10,), 1), priors.layerwise(), likelihoods.gaussian(scale=0.2))
    posterior = fit(model, HierarchicalLaplace(), x, y, progress=False)  # a warning that it has not converged fails
    num_fits = posterior.info.fit_stats["log_evidence"].shape[1]
    assert num_fits < 150 and posterior.info.num_gradients / num_fits < 200  # 600 without a preconditioner
