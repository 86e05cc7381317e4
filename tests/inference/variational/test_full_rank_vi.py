"""Gaussian families with correlations, against exact posteriors; what all variational methods share."""

import pytest
import torch

from bnnzoo.core.density import build_density
from bnnzoo.core.posterior import Gaussian
from bnnzoo.inference import FullRankVI, LowRankVI, MeanFieldVI, fit
from bnnzoo.inference.variational.elbo import annealed, elbo
from bnnzoo.inference.variational.full_rank_vi import FullRank
from bnnzoo.inference.variational.low_rank_vi import LowRank
from bnnzoo.testing.targets import linear_gaussian


@pytest.mark.parametrize("method", [FullRankVI(), LowRankVI(rank=2)])
def test_recovers_a_correlated_posterior(method) -> None:
    target = linear_gaussian()
    posterior = fit(target.model, method, *target.data)
    assert ((posterior.loc - target.mean["w"]).abs() < 0.02 * target.sd["w"]).all()
    scale = target.sd["w"]
    error = (posterior.covariance.dense() - target.covariance) / torch.outer(scale, scale)
    assert error.abs().max() < 0.02
    # where q is the posterior, every particle's bound is the evidence
    torch.testing.assert_close(posterior.info.fit_stats["elbo"][0, -1], target.log_evidence, rtol=0, atol=0.02)


@pytest.mark.parametrize("family", [FullRank(3), LowRank(3, 2)])
def test_family_agrees_with_its_gaussian(family) -> None:
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


def test_annealing_weights_average_to_one_and_end_at_one() -> None:
    weights = annealed(1000, 0.2)
    assert weights.mean() == pytest.approx(1.0)
    assert (weights[500:] == 1).all()
    assert weights[0] < 0.01
    target = linear_gaussian()
    posterior = fit(target.model, MeanFieldVI(num_steps=1000, num_averaged=200, kl_annealing=0.2), *target.data)
    assert isinstance(posterior, Gaussian)
    assert ((posterior.loc - target.mean["w"]).abs() < 0.06 * target.sd["w"]).all()
    assert ((posterior.covariance.diagonal() / target.mean_field_sd() ** 2 - 1).abs() < 0.03).all()


def test_refusals() -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=r"LowRankVI\(rank=0\): write 1 or more, or use MeanFieldVI"):
        fit(target.model, LowRankVI(rank=0), *target.data)
    with pytest.raises(ValueError, match=r"kl_annealing=0.9 of num_steps=100: write a share of the steps up to 0.3"):
        fit(target.model, MeanFieldVI(num_steps=100, num_averaged=10, kl_annealing=0.9), *target.data)
