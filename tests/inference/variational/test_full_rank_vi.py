"""Full-rank Gaussians against exact posteriors."""

import torch

from bnnzoo.core.model.density import build_density
from bnnzoo.inference import FullRankVI, fit
from bnnzoo.inference.variational.elbo import InvertibleFamily, elbo
from bnnzoo.inference.variational.full_rank_vi import FullRank
from bnnzoo.testing.targets import linear_gaussian


def test_recovers_a_correlated_posterior() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, FullRankVI(), *target.data)
    assert ((posterior.loc - target.mean["w"]).abs() < 0.02 * target.sd["w"]).all()
    scale = target.sd["w"]
    error = (posterior.covariance.dense() - target.covariance) / torch.outer(scale, scale)
    assert error.abs().max() < 0.02
    # where q is the posterior, every particle's bound is the evidence
    torch.testing.assert_close(posterior.info.fit_stats["elbo"][0, -1], target.log_evidence, rtol=0, atol=0.02)


def test_family_agrees_with_its_gaussian() -> None:
    family = FullRank(3)
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    size = family.start(torch.zeros(3), 0.1).numel()
    params = 0.3 * torch.randn(size)
    loc, covariance = family.gaussian(params)
    exact = torch.distributions.MultivariateNormal(loc, covariance.dense())
    noise = torch.randn(family.noise_size(3))
    theta = family.draw(params, noise)
    torch.testing.assert_close(theta, loc + covariance.sqrt_matmul(noise))
    torch.testing.assert_close(family.log_prob(params, theta), exact.log_prob(theta))
    own = elbo(density, family, params, noise[None], target.data)
    torch.testing.assert_close(own, density.log_joint(theta, *target.data) - exact.log_prob(theta))


def test_whitening_undoes_a_draw() -> None:
    family, noise = FullRank(4), torch.randn(4)
    assert isinstance(family, InvertibleFamily)
    params = 0.3 * torch.randn(family.start(torch.zeros(4), 0.1).numel())
    torch.testing.assert_close(family.whiten(params, family.draw(params, noise)), noise)


def test_a_hundred_correlated_parameters_do_not_run_away_in_single_precision() -> None:
    target = linear_gaussian(num_inputs=100, num_data=200, correlation=0.5)
    posterior = fit(target.model, FullRankVI(num_steps=300), *target.data, dtype=torch.float32, progress=False)
    bound = posterior.info.fit_stats["elbo"][0]
    assert bool(bound.isfinite().all())
    assert float(bound[-30:].mean()) < float(target.log_evidence) + 1.0  # a bound from below, up to its noise
    diagonal = posterior.covariance.dense().diagonal().sqrt() / target.sd["w"]
    assert float(diagonal.min()) > 0.5 and float(diagonal.max()) < 2.0
