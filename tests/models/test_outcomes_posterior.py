"""Posteriors of every family: all methods run, and known parameters come back."""

import functools

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from torch import nn

import bnnzoo as bz
from bnnzoo.models import likelihoods, priors, supervised

N, SLOPE, INTERCEPT = 300, 0.8, 0.5
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 1))
ETA = SLOPE * X[:, 0] + INTERCEPT
EXPOSURE = RNG.uniform(0.5, 3.0, N)
ZEROS = RNG.random(N) < 0.3
NOISE = RNG.normal(size=(N, 2)) @ np.array([[0.5, 0.3], [0.0, 0.4]])
TIMES, LIMITS = np.exp(ETA) * RNG.weibull(1.5, N), RNG.exponential(3.0, N)
LOG_TIMES = np.exp(ETA + 0.6 * RNG.normal(size=N))


def proportions():
    mean = 1 / (1 + np.exp(-ETA))
    return RNG.beta(8.0 * mean, 8.0 * (1 - mean)).clip(1e-9, 1 - 1e-9)


def dispersed(log_mean):
    return RNG.poisson(np.exp(log_mean) * RNG.gamma(2.0, 0.5, N))


# likelihood, outputs, y, columns beside it, and the true values of latent sites that are no weights
CASES = {
    "student_t": (
        likelihoods.student_t(dist.Gamma(2.0, 0.1)),
        1,
        ETA + 0.5 * RNG.standard_t(5, N),
        {},
        {"sigma": 0.5, "df": 5.0},
    ),
    "negative_binomial": (
        likelihoods.negative_binomial(),
        1,
        dispersed(ETA + np.log(EXPOSURE)),
        {"offset": np.log(EXPOSURE)},
        {"concentration": 2.0},
    ),
    "zero_inflated_poisson": (
        likelihoods.zero_inflated_poisson(dist.Beta(1.0, 1.0)),
        1,
        np.where(ZEROS, 0, RNG.poisson(np.exp(ETA))),
        {},
        {"zeros": 0.3},
    ),
    "zero_inflated_negative_binomial": (
        likelihoods.zero_inflated_negative_binomial(dist.Beta(1.0, 1.0)),
        1,
        np.where(ZEROS, 0, dispersed(ETA)),
        {},
        {"zeros": 0.3, "concentration": 2.0},
    ),
    "beta": (likelihoods.beta(), 1, proportions(), {}, {"precision": 8.0}),
    "gamma": (likelihoods.gamma(), 1, RNG.gamma(2.0, np.exp(ETA) / 2.0), {}, {"shape": 2.0}),
    "log_normal": (
        likelihoods.log_normal(),
        1,
        np.minimum(LOG_TIMES, LIMITS),
        {"censored": LOG_TIMES > LIMITS},
        {"sigma": 0.6},
    ),
    "weibull": (
        likelihoods.weibull(),
        1,
        np.minimum(TIMES, LIMITS),
        {"censored": TIMES > LIMITS},
        {"shape": 1.5},
    ),
    "ordinal": (
        likelihoods.ordinal(4),
        1,
        np.digitize(SLOPE * X[:, 0] + RNG.logistic(size=N), [-1.5, 0.0, 1.5]),
        {},
        {},
    ),
    "multivariate_gaussian": (
        likelihoods.multivariate_gaussian(),
        2,
        np.stack([ETA, -ETA], -1) + NOISE,
        {},
        {"sigma": np.array([0.5, 0.5])},
    ),
    "gaussian_mixture": (
        likelihoods.gaussian_mixture(2),
        6,
        np.where(ZEROS, 2.0, -2.0) + SLOPE * X[:, 0] + 0.3 * RNG.normal(size=N),
        {},
        None,
    ),
}
NAMES = list(CASES)
METHODS = {
    "MAP": bz.MAP(num_steps=200),
    "Laplace": bz.Laplace(bz.MAP(num_steps=300, num_members=4)),
    "MeanFieldVI": bz.MeanFieldVI(num_steps=200),
    "NUTS": bz.NUTS(num_chains=4, num_warmup=300, num_draws=300, max_tree_depth=7),
}


@functools.cache
def fitted(name, method):
    likelihood, outputs, y, columns, _ = CASES[name]
    model = supervised(nn.Linear(1, outputs), priors.normal(2.0), likelihood)
    return bz.fit(model, METHODS[method], X, y, progress=False, **columns)


def slope(posterior):
    """Return draws of the slope of the first output."""
    site = next(site for site in posterior.density.sites if site.name == "net.weight")
    return posterior.draws(1200 if not hasattr(posterior, "theta") else None)[..., site.span.start].flatten().numpy()


def z_scores(name, method):
    """Return how many standard deviations the posterior means of known quantities are from the truth."""
    posterior, truth = fitted(name, method), CASES[name][4]
    tree = bz.to_datatree(posterior)
    known = {site: tree["posterior"][site].to_numpy().reshape(-1, np.size(value)) for site, value in truth.items()}
    draws = [(slope(posterior), SLOPE)] + [(known[site], value) for site, value in truth.items()]
    return np.concatenate([np.atleast_1d((d.mean(0) - value) / d.std(0)) for d, value in draws])


def test_a_laplace_approximation_of_censored_times_finds_the_truth():
    found = z_scores("weibull", "Laplace")
    assert np.abs(found).max() < 3.5
    assert fitted("weibull", "Laplace").info.config["curvature"] == "ggn"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.FitWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_every_method_takes_every_family(name, method):
    _, _, y, columns, _ = CASES[name]
    posterior = fitted(name, method)
    train = bz.posterior_predictive(posterior, X, y, **columns)
    assert np.isfinite(train["log_likelihood"]["y"].to_numpy()).all()
    assert train["posterior_predictive"]["y"].shape[2:] == y.shape
    offset = {"offset": 0.0} if "offset" in columns else {}
    assert np.isfinite(bz.predict(posterior, X[:3], **offset)["predictions"]["y"].to_numpy()).all()
    if name != "gaussian_mixture":  # whose mode is one of many
        assert posterior.info.config.get("curvature", "ggn") == "ggn"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.FitWarning")
@pytest.mark.parametrize("name", [name for name in NAMES if CASES[name][4] is not None])
def test_known_parameters_come_back(name):
    assert np.abs(z_scores(name, "NUTS")).max() < 3.5
    laplace, nuts = slope(fitted(name, "Laplace")), slope(fitted(name, "NUTS"))
    assert abs(laplace.mean() - nuts.mean()) < 0.5 * nuts.std()
    assert abs(laplace.std() / nuts.std() - 1) < 0.25


@pytest.mark.slow
def test_a_mixture_finds_both_components():
    posterior = fitted("gaussian_mixture", "NUTS")
    at_zero = bz.predict(posterior, torch.zeros(1, 1))["predictions"]["y"].to_numpy().ravel()
    assert abs((at_zero > 0).mean() - 0.3) < 0.15
    assert abs(at_zero[at_zero > 0].mean() - 2.0) < 0.2
    assert abs(at_zero[at_zero < 0].mean() + 2.0) < 0.2
