"""Hierarchical priors end to end: NUTS against quadrature, and Neal's network density written out."""

import arviz_stats
import numpy as np
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from torch import nn

import bnnzoo as bz
from bnnzoo.core.model.density import build_density

NOISE = 0.5


def linear_data():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((20, 3))
    return x, x @ np.array([1.0, -0.4, 0.1]) + NOISE * generator.standard_normal(20)


def exact_means(x, y):
    """Posterior means of the scale and the weights: normal given the scale, which is integrated on a grid."""
    scales = np.linspace(1e-3, 8.0, 8000)
    log_density, weights = np.empty(len(scales)), np.empty((len(scales), x.shape[1]))
    for i, scale in enumerate(scales):
        covariance = NOISE**2 * np.eye(len(y)) + scale**2 * x @ x.T
        log_density[i] = scipy.stats.halfnorm.logpdf(scale) + scipy.stats.multivariate_normal(cov=covariance).logpdf(y)
        weights[i] = scale**2 * x.T @ np.linalg.solve(covariance, y)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    return density @ scales, density @ weights


@pytest.mark.slow
def test_nuts_finds_the_scale_and_the_weights_of_a_linear_model():
    x, y = linear_data()
    prior = bz.priors.layerwise(dist.HalfNormal(1.0))
    model = bz.models.supervised(nn.Linear(3, 1, bias=False), prior, bz.likelihoods.gaussian(NOISE))
    tree = bz.posterior_predictive(bz.fit(model, bz.NUTS(num_chains=2, num_warmup=300, num_draws=500), x, y), x, y)
    scale, weights = tree["posterior"]["net.weight.scale"], tree["weights"]["net.weight"].squeeze()
    expected_scale, expected_weights = exact_means(x, y)
    draws = [scale.values, *np.moveaxis(weights.values, -1, 0)]
    for found, expected in zip(draws, [expected_scale, *expected_weights], strict=True):
        ess = float(arviz_stats.ess(found))
        assert ess > 150
        assert abs(found.mean() - expected) < 5 * found.std() / np.sqrt(ess)


def neal_model():
    unknown = bz.priors.gamma_precision(shape=0.25, scale=0.05)
    prior = bz.priors.by_parameter(
        {"2.bias": bz.priors.normal(100.0), "2.weight": bz.priors.layerwise(unknown, by_fan_in=True)},
        default=bz.priors.layerwise(unknown),
    )
    return bz.models.supervised(bz.models.mlp(1, (8,)), prior, bz.likelihoods.gaussian(unknown))


def neal_log_density(values, x, y):
    """Neal's network regression in terms of precisions, with the Jacobian of precisions to scales."""
    total = scipy.stats.norm(scale=100.0).logpdf(values["net.2.bias"]).sum()
    for site, width, mean_width in (
        ("net.0.weight", 1.0, 0.05),
        ("net.0.bias", 1.0, 0.05),
        ("net.2.weight", np.sqrt(8), 0.05 / np.sqrt(8)),
        ("sigma", 1.0, 0.05),
    ):
        scale = values[site if site == "sigma" else f"{site}.scale"] / width
        precision = scale**-2.0
        gamma = scipy.stats.gamma(0.25, scale=mean_width**-2.0 / 0.25)
        total += gamma.logpdf(precision) + np.log(2 * scale**-3.0) - np.log(width)
        if site != "sigma":
            total += scipy.stats.norm(scale=scale).logpdf(values[site]).sum()
    hidden = np.tanh(x @ values["net.0.weight"].T + values["net.0.bias"])
    mean = (hidden @ values["net.2.weight"].T)[:, 0] + values["net.2.bias"]
    return total + scipy.stats.norm(mean, values["sigma"]).logpdf(y).sum()


def test_neals_network_has_neals_density():
    x, y = torch.randn(10, 1), torch.randn(10)
    density = build_density(neal_model(), x, y)
    for theta in density.init(3, seed=0):
        values, free = density.constrain(theta), density.unconstrained(theta)
        jacobian = sum(s.transform.log_abs_det_jacobian(free[s.name], values[s.name]).sum() for s in density.sites)
        expected = neal_log_density({name: value.numpy() for name, value in values.items()}, x.numpy(), y.numpy())
        np.testing.assert_allclose(density.log_joint(theta, x, y) - jacobian, expected, rtol=1e-9)
