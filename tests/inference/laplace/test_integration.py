"""Hierarchies integrated over their scales, against quadrature of marginal posteriors that are known."""

import math
from pathlib import Path

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.distributions import HalfCauchy, HalfNormal, MultivariateNormal, Normal, Poisson

import bnnzoo as bz
from bnnzoo.core.fit_warnings import TooNarrowWarning
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.posterior import Gaussian, Mixture, Posterior
from bnnzoo.engine.torch_private import LoweringWarning
from bnnzoo.inference import MAP, HierarchicalLaplace, Laplace, log_marginal_likelihood
from bnnzoo.inference.laplace.conditionals import ConditionalModes, Conditionals
from bnnzoo.inference.laplace.integration import _Around, _axes, _joint_roots

Y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=torch.float64)
SIGMA = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=torch.float64)
QUICK = MAP(num_steps=100)
GRID = torch.linspace(-9.0, 5.0, 1401, dtype=torch.float64)  # of log scales
TOLERANCE = 0.04  # of means in standard deviations, and of the logarithm of standard deviations
NOISE = torch.randn(40, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def centred(y: Tensor, sigma: Tensor) -> None:
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", 8):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def non_centred(y: Tensor, sigma: Tensor) -> None:
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", 8):
        eta = pyro.sample("eta", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu + tau * eta, sigma), obs=y)


def grouped(y: Tensor) -> None:
    tau, sigma = pyro.sample("tau", dist.HalfNormal(1.0)), pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("groups", 5):
        a = pyro.sample("a", dist.Normal(0.0, tau))
    pyro.sample("y", dist.Normal(a[torch.arange(15) % 5], sigma), obs=y)


def counts(y: Tensor) -> None:
    tau = pyro.sample("tau", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(y)):
        e = pyro.sample("e", dist.Normal(0.0, tau))
        pyro.sample("y", dist.Poisson((1 + e).exp()), obs=y)


def batteries(y: Tensor) -> None:
    tau = pyro.sample("tau", dist.HalfNormal(torch.ones(y.shape[1])).to_event(1))
    with pyro.plate("rows", len(y)):
        e = pyro.sample("e", dist.Normal(torch.zeros(y.shape[1]), tau).to_event(1))
        pyro.sample("y", dist.Normal(e, 0.5).to_event(1), obs=y)


def moments(posterior: Posterior, name: str) -> tuple[Tensor, Tensor]:
    draws = posterior.density.constrain(posterior.draws(20_000)[0])[name]
    return draws.mean(0), draws.std(0)


def agrees(found: tuple[Tensor, Tensor], values: Tensor, weights: Tensor) -> None:
    """Compare a mean and an sd with those of values ``[G]`` of these weights."""
    mean = (weights * values).sum() / weights.sum()
    sd = ((weights * (values - mean) ** 2).sum() / weights.sum()).sqrt()
    assert abs(float((found[0] - mean) / sd)) < TOLERANCE
    assert abs(math.log(float(found[1] / sd))) < TOLERANCE


@pytest.mark.parametrize("model", [centred, non_centred])
def test_scale_and_mean_of_eight_schools_are_those_of_quadrature(model) -> None:
    posterior = bz.fit(model, Laplace(QUICK), Y, SIGMA, progress=False)
    assert isinstance(posterior, Mixture) and posterior.info.config["integrated_over"] == ["tau"]
    tau = GRID.exp()
    covariance = tau[:, None, None] ** 2 * torch.eye(8) + torch.diag(SIGMA**2) + 25.0
    log_density = MultivariateNormal(torch.zeros(8), covariance).log_prob(Y) + HalfCauchy(5.0).log_prob(tau) + GRID
    weights = log_density.softmax(0)
    agrees(moments(posterior, "tau"), tau, weights)
    precision = (1 / (tau[:, None] ** 2 + SIGMA**2)).sum(1) + 1 / 25
    mean = (Y / (tau[:, None] ** 2 + SIGMA**2)).sum(1) / precision
    found, spread = moments(posterior, "mu")
    exact = (weights * mean).sum()
    sd = ((weights * (1 / precision + mean**2)).sum() - exact**2).sqrt()
    assert abs(float((found - exact) / sd)) < TOLERANCE and abs(math.log(float(spread / sd))) < TOLERANCE
    evidence = torch.logsumexp(log_density, 0) + math.log(float(GRID[1] - GRID[0]))
    assert abs(float(log_marginal_likelihood(posterior) - evidence)) < 0.01


def test_noise_scale_is_integrated_over_with_the_scale_of_effects() -> None:
    y = torch.tensor([0.9, -0.4, 0.3, 1.1, -1.0])[torch.arange(15) % 5] + 0.6 * NOISE[:15]
    posterior = bz.fit(grouped, HierarchicalLaplace(Laplace(QUICK)), y, progress=False)
    assert posterior.info.config["integrated_over"] == ["tau", "sigma"]
    grid = torch.linspace(-6.0, 2.0, 161, dtype=torch.float64)
    tau, sigma = (each.exp() for each in torch.meshgrid(grid, grid, indexing="ij"))
    same = (torch.arange(15)[:, None] % 5 == torch.arange(15) % 5).to(y)
    covariance = tau[..., None, None] ** 2 * same + sigma[..., None, None] ** 2 * torch.eye(15)
    factor = torch.linalg.cholesky(covariance)
    log_density = MultivariateNormal(torch.zeros(15), scale_tril=factor).log_prob(y) + (tau * sigma).log()
    log_density = log_density + HalfNormal(1.0).log_prob(tau) + HalfNormal(1.0).log_prob(sigma)
    weights = log_density.flatten().softmax(0)
    agrees(moments(posterior, "tau"), tau.flatten(), weights)
    agrees(moments(posterior, "sigma"), sigma.flatten(), weights)


def test_means_of_skewed_effects_are_those_of_quadrature_and_not_the_modes() -> None:
    y = torch.tensor([0.0, 1.0, 2.0, 2.0, 9.0, 0.0])
    posterior = bz.fit(counts, Laplace(QUICK), y, progress=False)
    grid, z = torch.linspace(-6.0, 2.0, 161), torch.linspace(-6.0, 6.0, 241)
    tau = grid.exp()
    joint = Poisson((1 + tau[:, None] * z).exp()).log_prob(y[:, None, None]) + Normal(0.0, 1.0).log_prob(z)
    given = joint.logsumexp(-1)  # of each row
    weights = (given.sum(0) + HalfNormal(1.0).log_prob(tau) + grid).softmax(0)
    agrees(moments(posterior, "tau"), tau, weights)
    mean, sd = moments(posterior, "e")
    for row in range(len(y)):
        both = weights[:, None] * joint[row].softmax(-1)
        agrees((mean[row], sd[row]), (tau[:, None] * z).flatten(), both.flatten())


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5])  # a grid, and quasi-random points
def test_several_scales_are_each_that_of_its_own_model(size: int) -> None:
    y = NOISE[:30].reshape(10, 3).repeat(1, 2)[:, :size] * torch.tensor([0.2, 1.0, 2.0, 0.6, 1.4])[:size]
    posterior = bz.fit(batteries, HierarchicalLaplace(Laplace(QUICK), tolerance=0.05), y, progress=False)
    tau = GRID.exp()
    for column, mean, sd in zip(y.mT, *moments(posterior, "tau"), strict=True):
        marginal = Normal(0.0, (tau**2 + 0.25).sqrt()).log_prob(column[:, None]).sum(0)
        weights = (marginal + HalfNormal(1.0).log_prob(tau) + GRID).softmax(0)
        exact = (weights * tau).sum()
        spread = ((weights * tau**2).sum() - exact**2).sqrt()
        assert abs(float((mean - exact) / spread)) < 0.2 and abs(math.log(float(sd / spread))) < 0.2


def test_it_saves_predicts_and_is_drawn_from_as_any_other(tmp_path: Path) -> None:
    posterior = bz.fit(non_centred, Laplace(QUICK), Y, SIGMA, progress=False)
    posterior.save(tmp_path / "schools.bnn")
    loaded = bz.load(tmp_path / "schools.bnn", non_centred, Y, SIGMA)
    assert torch.equal(loaded.draws(50), posterior.draws(50))
    assert torch.equal(loaded.log_prob(loaded.draws(5)), posterior.log_prob(posterior.draws(5)))
    assert bz.posterior_predictive(posterior, Y, SIGMA, num_draws=20)["log_likelihood"]["y"].sizes["draw"] == 20


def test_single_precision_and_models_that_cannot_be_batched_give_the_same() -> None:
    def one_by_one(y: Tensor, sigma: Tensor) -> None:
        mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(5.0))
        assert math.isfinite(mu.detach().item())  # which vmap refuses
        with pyro.plate("schools", 8):
            eta = pyro.sample("eta", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Normal(mu + tau * eta, sigma), obs=y)

    exact = bz.fit(non_centred, Laplace(QUICK), Y, SIGMA, progress=False)
    single = bz.fit(non_centred, Laplace(QUICK), Y.float(), SIGMA.float(), dtype=torch.float32, progress=False)
    assert isinstance(exact, Mixture) and isinstance(single, Mixture)
    assert single.draws().dtype == torch.float32
    assert abs(float(moments(single, "tau")[0] - moments(exact, "tau")[0])) < 0.1
    with pytest.warns(LoweringWarning, match="could not be traced"):
        slow = bz.fit(one_by_one, Laplace(MAP(num_steps=10)), Y, SIGMA, progress=False)
    torch.testing.assert_close(slow.draws(5), exact.draws(5), rtol=1e-3, atol=1e-3)


def test_joint_mode_is_still_there_for_who_asks() -> None:
    with pytest.warns(bz.inference.JointModeWarning, match="'tau' only matters through 'eta'") as told:
        found = bz.fit(non_centred, Laplace(QUICK, integrate=False), Y, SIGMA, progress=False)
    assert isinstance(found, Gaussian) and len(told) == 1  # and no verdict that says the same
    at_mode = bz.fit(non_centred, HierarchicalLaplace(Laplace(QUICK), integrate=False), Y, SIGMA, progress=False)
    assert isinstance(at_mode, Gaussian) and float(at_mode.draws(9).std(1).amin()) == 0.0


def test_what_cannot_be_integrated_over_is_said() -> None:
    y = NOISE[:14].reshape(2, 7)
    method = HierarchicalLaplace(bz.DiagonalLaplace(QUICK), tolerance=0.5)
    with pytest.warns(
        TooNarrowWarning, match=r"'tau' are set to their mode.*it takes laplace=Laplace\(\).*or use NUTS"
    ):
        bz.fit(batteries, method, y[:, :1], progress=False)
    with pytest.raises(ValueError, match=r"integrate=True\): it takes 6 hyperparameters or fewer, and there are 7\."):
        bz.fit(batteries, HierarchicalLaplace(integrate=True), y, progress=False)
    with pytest.raises(ValueError, match=r"integrate=True\): it takes laplace=Laplace\(\) with the exact Hessian"):
        bz.fit(grouped, HierarchicalLaplace(bz.DiagonalLaplace(), integrate=True), NOISE[:15], progress=False)


@pytest.mark.parametrize("narrow", [1.0, 1e-10])
def test_roots_of_hyperparameters_and_others_are_those_of_their_joint_covariance(narrow: float) -> None:
    """In single precision, too, where others follow so closely that their joint covariance is singular by rounding."""
    generator = torch.Generator().manual_seed(0)
    slope, kernel = torch.randn(2, 3, 2, generator=generator), torch.randn(2, 2, 2, generator=generator)
    half = torch.randn(2, 3, 3, generator=generator)
    covariance, index, others = narrow * (half @ half.mT), torch.tensor([0, 3]), torch.tensor([1, 2, 4])
    root = _joint_roots(covariance, slope, kernel, index, others)
    assert bool((root.diagonal(dim1=1, dim2=2) > 0).all()) and torch.equal(root, root.tril())
    exact = [each.double() for each in (covariance, slope, kernel)]
    joint, own = (root.double() @ root.double().mT), exact[2] @ exact[2].mT
    torch.testing.assert_close(joint[:, index[:, None], index], own, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(joint[:, others[:, None], index], exact[1] @ own, rtol=1e-5, atol=1e-5)
    expected = exact[0] + exact[1] @ own @ exact[1].mT
    torch.testing.assert_close(joint[:, others[:, None], others], expected, rtol=1e-5, atol=1e-5)


def test_axes_stay_those_of_the_curvature_where_the_density_has_no_peak_nearby() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.float64)

    class Cliff(_Around):
        def at(self, away: Tensor) -> ConditionalModes:
            heights = -2.0 * away[:, 0] ** 2 - 0.5 * away[:, 1] ** 2
            return ConditionalModes(nothing, heights.masked_fill(away[:, 1] > 0.15, -math.inf), nothing)

    density = build_density(centred, Y, SIGMA)
    index, others = torch.arange(2), torch.arange(2, 10)
    conditionals = Conditionals(density, index, others, 0.0)
    axes = _axes(Cliff(conditionals, ConditionalModes(nothing, nothing[:, 0], nothing), index, nothing))
    assert axes.isfinite().all()
    torch.testing.assert_close(axes.abs().max(0)[0].sort()[0], torch.tensor([0.5, 3.0], dtype=torch.float64))
