"""Low-rank Gaussians against exact posteriors."""

import pytest
import torch

from bnnzoo.core.model.density import build_density
from bnnzoo.inference import LowRankVI, fit
from bnnzoo.inference.variational.elbo import InvertibleFamily, elbo
from bnnzoo.inference.variational.low_rank_vi import LowRank
from bnnzoo.testing.targets import linear_gaussian


@pytest.mark.slow
def test_recovers_a_correlated_posterior() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, LowRankVI(rank=2), *target.data)
    assert ((posterior.loc - target.mean["w"]).abs() < 0.02 * target.sd["w"]).all()
    scale = target.sd["w"]
    error = (posterior.covariance.dense() - target.covariance) / torch.outer(scale, scale)
    assert error.abs().max() < 0.02
    # where q is the posterior, every particle's bound is the evidence
    torch.testing.assert_close(posterior.info.fit_stats["elbo"][0, -1], target.log_evidence, rtol=0, atol=0.02)


def test_family_agrees_with_its_gaussian() -> None:
    family = LowRank(3, 2)
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


def test_the_family_cannot_be_whitened() -> None:
    assert not isinstance(LowRank(3, 2), InvertibleFamily)


def test_refuses_a_rank_of_zero() -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=r"LowRankVI\(rank=0\): write 1 or more"):
        fit(target.model, LowRankVI(rank=0), *target.data)
