"""Families of outcomes against scipy: log densities, moments and derivatives far out."""

import math

import numpy as np
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from pyro import poutine
from scipy.special import expit, log_expit

from bnnzoo.core.likelihood.conditional import moments
from bnnzoo.models import likelihoods
from bnnzoo.models.likelihoods.ordinal import OrderStatistics

F = np.array([-1.0, 0.0, 2.5, 0.7])
G = np.array([-2.0, 0.5, 1.0, -0.3])
COUNTS, TIMES = np.array([0.0, 3.0, 21.0, 0.0]), np.array([0.2, 1.0, 7.5, 3.0])
PROPORTIONS, LABELS = np.array([0.01, 0.4, 0.97, 0.5]), np.array([0, 3, 2, 1])
TWO = np.stack([F, G], -1)
CUTPOINTS = (-1.0, 0.5, 2.0)


def site_of(likelihood, output, y=None, values=None, **columns):
    conditioned = poutine.condition(likelihood, {name: torch.tensor(v) for name, v in (values or {}).items()})
    trace = poutine.trace(conditioned).get_trace(
        torch.as_tensor(output), None if y is None else torch.as_tensor(y), **columns
    )
    return trace.nodes["y"]


def log_prob(*args, **columns):
    node = site_of(*args, **columns)
    return node["fn"].log_prob(node["value"]).numpy()


def negative_binomial(log_mean, concentration):
    return scipy.stats.nbinom(concentration, concentration / (concentration + np.exp(log_mean)))


def weibull(log_scale, shape):
    return scipy.stats.weibull_min(shape, scale=np.exp(log_scale))


def log_normal(loc, scale):
    return scipy.stats.lognorm(scale, scale=np.exp(loc))


def inflated(base, zeros):
    density = (1 - zeros) * base.pmf(COUNTS) + np.where(COUNTS == 0, zeros, 0.0)
    mean, second = (1 - zeros) * base.mean(), (1 - zeros) * (base.var() + base.mean() ** 2)
    return np.log(density), mean, second - mean**2


SCALAR = {
    "student_t": (likelihoods.student_t(5.0, 0.5), F, G, scipy.stats.t(5.0, F, 0.5)),
    "poisson": (likelihoods.poisson(), F, COUNTS, scipy.stats.poisson(np.exp(F))),
    "negative_binomial": (likelihoods.negative_binomial(3.5), F, COUNTS, negative_binomial(F, 3.5)),
    "beta": (
        likelihoods.beta(4.0),
        F,
        PROPORTIONS,
        scipy.stats.beta(4.0 * expit(F), 4.0 * expit(-F)),
    ),
    "gamma": (likelihoods.gamma(2.5), F, TIMES, scipy.stats.gamma(2.5, scale=np.exp(F) / 2.5)),
    "log_normal": (likelihoods.log_normal(0.6), F, TIMES, log_normal(F, 0.6)),
    "weibull": (likelihoods.weibull(1.7), F, TIMES, weibull(F, 1.7)),
}


@pytest.mark.parametrize(("likelihood", "f", "y", "reference"), SCALAR.values(), ids=SCALAR.keys())
def test_densities_and_moments_are_scipys(likelihood, f, y, reference):
    logs = reference.logpdf(y) if hasattr(reference.dist, "logpdf") else reference.logpmf(y)
    np.testing.assert_allclose(log_prob(likelihood, f[:, None], y), logs, rtol=0, atol=1e-10)
    found = moments(site_of(likelihood, f)["fn"])
    np.testing.assert_allclose(found["mean"], reference.mean(), rtol=1e-10)
    np.testing.assert_allclose(found["variance"], reference.var(), rtol=1e-10)
    if "entropy" in found:
        np.testing.assert_allclose(found["entropy"], reference.entropy(), atol=1e-8)


@pytest.mark.parametrize(
    ("likelihood", "expected"),
    [
        (likelihoods.zero_inflated_poisson(), inflated(scipy.stats.poisson(np.exp(F)), expit(G))),
        (likelihoods.zero_inflated_poisson(0.3), inflated(scipy.stats.poisson(np.exp(F)), 0.3)),
        (
            likelihoods.zero_inflated_negative_binomial(concentration=3.5),
            inflated(negative_binomial(F, 3.5), expit(G)),
        ),
        (likelihoods.zero_inflated_negative_binomial(0.3, 3.5), inflated(negative_binomial(F, 3.5), 0.3)),
    ],
)
def test_zero_inflation_mixes_zeros_in(likelihood, expected):
    output = TWO if likelihood.zeros is None else F
    np.testing.assert_allclose(log_prob(likelihood, output, COUNTS), expected[0], rtol=0, atol=1e-10)
    found = moments(site_of(likelihood, output)["fn"])
    np.testing.assert_allclose(found["mean"], expected[1], rtol=1e-10)
    np.testing.assert_allclose(found["variance"], expected[2], rtol=1e-10)


def test_ordinal_probabilities_are_differences_of_logistic_ones():
    likelihood = likelihoods.ordinal(4, CUTPOINTS)
    below = expit(np.array([-np.inf, *CUTPOINTS, np.inf]) - F[:, None])
    probs = np.diff(below)
    np.testing.assert_allclose(log_prob(likelihood, F, LABELS), np.log(probs[range(4), LABELS]), rtol=0, atol=1e-10)
    np.testing.assert_allclose(moments(site_of(likelihood, F)["fn"])["probs"], probs, rtol=1e-10)


def test_several_ordinal_targets_have_cutpoints_each():
    values, y = {"cutpoints": np.array([[-1.0, 1.0], [0.0, 0.5]])}, np.stack([LABELS % 3, LABELS[::-1] % 3], -1)
    found = log_prob(likelihoods.ordinal(3), TWO, y, values)
    each = [log_prob(likelihoods.ordinal(3, tuple(values["cutpoints"][d])), TWO[:, d], y[:, d]) for d in (0, 1)]
    np.testing.assert_allclose(found, sum(each), atol=1e-12)
    assert moments(site_of(likelihoods.ordinal(3), TWO)["fn"])["probs"].shape == (4, 2, 3)


def test_cutpoints_are_order_statistics():
    prior = OrderStatistics(dist.Logistic(0.0, 1.0), 3)
    torch.manual_seed(0)
    draws = prior.sample((4000,))
    probs = torch.diff(torch.sigmoid(draws), prepend=torch.zeros(4000, 1), append=torch.ones(4000, 1))
    # uniform over probabilities, Dirichlet(1, 1, 1, 1): mean 1/4, variance 3/80
    assert float((probs.mean(0) - 0.25).abs().max()) < 4 * (3 / 80 / 4000) ** 0.5
    density = scipy.stats.logistic.logpdf(draws[:5].numpy()).sum(-1) + math.log(6)
    np.testing.assert_allclose(prior.log_prob(draws[:5]), density, atol=1e-12)


def test_several_targets_have_a_covariance():
    factor, scale = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([0.5, 2.0])
    values = {"sigma": scale, "correlation_cholesky": factor}
    likelihood, y = likelihoods.multivariate_gaussian(), TWO[::-1].copy()
    covariance = scale[:, None] * (factor @ factor.T) * scale
    expected = [scipy.stats.multivariate_normal(f, covariance).logpdf(row) for f, row in zip(TWO, y, strict=True)]
    np.testing.assert_allclose(log_prob(likelihood, TWO, y, values), expected, rtol=0, atol=1e-10)
    found = moments(site_of(likelihood, TWO, None, values)["fn"])
    np.testing.assert_allclose(found["mean"], TWO, rtol=1e-12)
    np.testing.assert_allclose(found["variance"], np.broadcast_to(np.diag(covariance), (4, 2)), rtol=1e-10)
    torch.manual_seed(0)
    draws = site_of(likelihood, np.zeros((20_000, 2)), None, values)["value"].numpy()
    errors = (np.cov(draws.T) - covariance) / (covariance.max() * (2 / 20_000) ** 0.5)
    assert np.abs(errors).max() < 5


@pytest.mark.parametrize("num_targets", [1, 2])
def test_a_mixture_density_is_a_weighted_sum(num_targets):
    rng = np.random.default_rng(0)
    output, y = rng.normal(size=(4, 3 * (2 * num_targets + 1))), rng.normal(size=(4, num_targets))
    width = 3 * num_targets
    locs = output[:, :width].reshape(4, 3, num_targets)
    scales = np.log1p(np.exp(output[:, width : 2 * width])).reshape(4, 3, num_targets) + 0.01
    weights = scipy.special.softmax(output[:, 2 * width :], -1)
    each = scipy.stats.norm(locs, scales).pdf(y[:, None]).prod(-1)
    likelihood = likelihoods.gaussian_mixture(3)
    found = log_prob(likelihood, output, y[:, 0] if num_targets == 1 else y)
    np.testing.assert_allclose(found, np.log((weights * each).sum(-1)), rtol=0, atol=1e-10)
    mean = (weights[..., None] * locs).sum(1)
    variance = (weights[..., None] * (scales**2 + locs**2)).sum(1) - mean**2
    fn = moments(site_of(likelihood, output)["fn"])
    np.testing.assert_allclose(fn["mean"].reshape(4, -1), mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fn["variance"].reshape(4, -1), variance, rtol=1e-10)


@pytest.mark.parametrize(
    ("likelihood", "reference"),
    [(likelihoods.weibull(1.7), weibull(F, 1.7)), (likelihoods.log_normal(0.6), log_normal(F, 0.6))],
)
@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float64])
def test_a_censored_time_has_the_probability_of_a_later_one(likelihood, reference, kind):
    censored = np.array([True, False, True, False])
    expected = np.where(censored, reference.logsf(TIMES), reference.logpdf(TIMES))
    columns = {"censored": torch.tensor(censored).to(kind)}
    np.testing.assert_allclose(log_prob(likelihood, F, TIMES, **columns), expected, rtol=0, atol=1e-10)
    # moments are those of the times
    found = moments(site_of(likelihood, F, TIMES, **columns)["fn"])
    np.testing.assert_allclose(found["mean"], reference.mean(), rtol=1e-10)
    np.testing.assert_allclose(found["variance"], reference.var(), rtol=1e-10)


OFFSET = np.array([0.5, -1.0, 2.0, 0.0])
WITH_OFFSET = {name: (likelihood, f, y) for name, (likelihood, f, y, _) in SCALAR.items()} | {
    "gaussian": (likelihoods.gaussian(0.5), F, G),
    "laplace": (likelihoods.laplace(0.5), F, G),
    "heteroscedastic_gaussian": (likelihoods.heteroscedastic_gaussian(), TWO, G),
    "bernoulli": (likelihoods.bernoulli(), F, LABELS % 2),
    "zero_inflated_poisson": (likelihoods.zero_inflated_poisson(), TWO, COUNTS),
    "ordinal": (likelihoods.ordinal(4, CUTPOINTS), F, LABELS),
}


@pytest.mark.parametrize(("likelihood", "f", "y"), WITH_OFFSET.values(), ids=WITH_OFFSET.keys())
def test_an_offset_is_added_to_the_first_output(likelihood, f, y):
    moved = f + OFFSET if f.ndim == 1 else f + np.stack([OFFSET, 0 * OFFSET], -1)
    with_offset = log_prob(likelihood, f, y, offset=torch.tensor(OFFSET))
    np.testing.assert_allclose(with_offset, log_prob(likelihood, moved, y), rtol=1e-12)
    column = log_prob(likelihood, f, y, offset=torch.tensor(OFFSET)[:, None])
    np.testing.assert_array_equal(column, with_offset)
    one = log_prob(likelihood, f, y, offset=0.5)
    np.testing.assert_array_equal(one, log_prob(likelihood, f, y, offset=torch.full((4,), 0.5)))


def test_offsets_of_several_outputs():
    both = torch.tensor(np.stack([OFFSET, -OFFSET], -1))
    y = np.stack([COUNTS, COUNTS[::-1]], -1)
    found = log_prob(likelihoods.negative_binomial(2.0), TWO, y, offset=both)
    np.testing.assert_allclose(found, log_prob(likelihoods.negative_binomial(2.0), TWO + both.numpy(), y), rtol=1e-12)
    found = log_prob(likelihoods.categorical(), TWO, LABELS % 2, offset=both)
    np.testing.assert_allclose(found, log_prob(likelihoods.categorical(), TWO + both.numpy(), LABELS % 2), rtol=1e-12)
    output = np.concatenate([TWO, TWO[:, ::-1], TWO], -1)
    moved = output + np.concatenate([np.repeat(OFFSET[:, None], 2, 1), np.zeros((4, 4))], -1)
    mixture = likelihoods.gaussian_mixture(2)
    found = log_prob(mixture, output, G, offset=torch.tensor(OFFSET))
    np.testing.assert_allclose(found, log_prob(mixture, moved, G), rtol=1e-12)


FAR = (-1e4, -800.0, -80.0, 80.0, 800.0, 1e4)
LATER = {"censored": torch.ones(len(FAR))}
EXTREME = {
    **{name: (likelihood, y[1:3], {}) for name, (likelihood, _, y, _) in SCALAR.items()},
    **{f"censored_{name}": (SCALAR[name][0], TIMES[1:3], LATER) for name in ("log_normal", "weibull")},
    "no_counts": (likelihoods.poisson(), np.zeros(1), {}),
    "zero_inflated_poisson": (likelihoods.zero_inflated_poisson(0.3), np.array([0.0, 2.0]), {}),
    "zero_inflated_negative_binomial": (
        likelihoods.zero_inflated_negative_binomial(0.3, 2.0),
        np.array([0.0, 2.0]),
        {},
    ),
    "ordinal": (likelihoods.ordinal(4, CUTPOINTS), np.arange(4), {}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("likelihood", "y", "columns"), EXTREME.values(), ids=EXTREME.keys())
def test_derivatives_are_finite_far_out(likelihood, y, columns, dtype):
    for value in y:
        f = torch.tensor(FAR, dtype=dtype, requires_grad=True)
        target = torch.tensor([value] * len(FAR))
        target = target.to(dtype) if target.is_floating_point() else target
        node = site_of(likelihood, f, target, **columns)
        logs = node["fn"].log_prob(node["value"])
        assert torch.autograd.grad(logs.sum(), f)[0].isfinite().all()
        assert not logs.isnan().any()


def test_far_out_log_densities_are_right():
    logs = log_prob(likelihoods.ordinal(4, CUTPOINTS), np.array([-60.0, 60.0]), np.array([3, 0]))
    np.testing.assert_allclose(logs, log_expit([-62.0, -61.0]), rtol=1e-12)
    logs = log_prob(likelihoods.beta(4.0), np.array([-60.0]), np.array([0.3]))
    np.testing.assert_allclose(logs, scipy.stats.beta(4 * expit(-60.0), 4.0).logpdf(0.3), rtol=1e-10)
    logs = log_prob(likelihoods.log_normal(0.5), np.array([-20.0]), np.array([1.0]), censored=torch.ones(1))
    np.testing.assert_allclose(logs, scipy.stats.norm.logsf(40.0), rtol=1e-10)
