"""Posteriors of the table of messengers and distributions, beside those of NumPyro where it has a counterpart."""

from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pytest
import torch

import bnnzoo as bz
from tests.helpers.messengers import LATENT, MESSENGERS, OBSERVED, X, Y, common_priors, counts

pytestmark = pytest.mark.slow

type Texts = dict[str, Callable[..., Any]]

OUTCOMES: dict[str, Callable[[Any], Any]] = {  # of the rows whose outcome is not y itself
    "`Bernoulli`": lambda y: (y > 0).to(y.dtype),
    "`Beta`": torch.sigmoid,
    **dict.fromkeys(("`Exponential`", "`Gamma`", "`InverseGamma`", "`LogNormal`", "`Weibull`"), torch.abs),
    **dict.fromkeys(("`BetaBinomial`", "`Binomial`", "`GammaPoisson`", "`Poisson`", "`ZeroInflatedPoisson`"), counts),
    "`OrderedLogistic`": lambda y: (y > -0.5).long() + (y > 0).long() + (y > 0.5).long(),
}


def _families(dist: Any, jnp: Any) -> Texts:
    """Return observed sites of NumPyro given a row's predictor and a positive number, by the rows of the table."""
    return {
        "`AsymmetricLaplace`": lambda f, s: dist.AsymmetricLaplace(f, s, 1.5),
        "`Bernoulli`": lambda f, s: dist.Bernoulli(logits=f * s),
        "`Beta`": lambda f, s: dist.Beta(jnp.exp(f), s),
        "`BetaBinomial`": lambda f, s: dist.BetaBinomial(jnp.exp(f), s, 9),
        "`Binomial`": lambda f, s: dist.Binomial(9, logits=f * s),
        "`Cauchy`": lambda f, s: dist.Cauchy(f, s),
        "`Exponential`": lambda f, s: dist.Exponential(jnp.exp(f) * s),
        "`Gamma`": lambda f, s: dist.Gamma(s, jnp.exp(f)),
        "`GammaPoisson`": lambda f, s: dist.GammaPoisson(s, jnp.exp(f)),
        "`Gumbel`": lambda f, s: dist.Gumbel(f, s),
        "`InverseGamma`": lambda f, s: dist.InverseGamma(s, jnp.exp(f)),
        "`Laplace`": lambda f, s: dist.Laplace(f, s),
        "`LogNormal`": lambda f, s: dist.LogNormal(f, s),
        "`Logistic`": lambda f, s: dist.Logistic(f, s),
        "`Normal`": lambda f, s: dist.Normal(f, s),
        "`OrderedLogistic`": lambda f, s: dist.OrderedLogistic(f, jnp.stack([-s, 0 * s, s])),
        "`Poisson`": lambda f, s: dist.Poisson(s * jnp.exp(f)),
        "`SoftLaplace`": lambda f, s: dist.SoftLaplace(f, s),
        "`StudentT`": lambda f, s: dist.StudentT(4.0, f, s),
        "`VonMises`": lambda f, s: dist.VonMises(f, s),
        "`Weibull`": lambda f, s: dist.Weibull(s, jnp.exp(f)),
        "`ZeroInflatedPoisson`": lambda f, s: dist.ZeroInflatedPoisson(0.2, s * jnp.exp(f)),
    }


ROWS = [
    *((name, "latent") for name in common_priors(None, None, None)),
    *((name, "observed") for name in _families(None, None)),
    *((name, "messenger") for name in ("`poutine.scale`", "`poutine.mask`", "`pyro.factor`")),
]


def _text(name: str, kind: str) -> Callable[..., None]:
    """Return NumPyro's model of a row."""
    numpyro, jnp = pytest.importorskip("numpyro"), pytest.importorskip("jax.numpy")
    dist, handlers = numpyro.distributions, numpyro.handlers

    priors = common_priors(dist, lambda *values: jnp.array(values), jnp.eye(2))

    def of_prior(x: Any, y: Any) -> None:
        w = numpyro.sample("w", priors[name]())
        numpyro.sample("y", dist.Normal(x * jnp.mean(w), 1.0), obs=y)

    def of_family(x: Any, y: Any) -> None:
        w, s = numpyro.sample("w", dist.Normal(0.0, 1.0)), numpyro.sample("s", dist.Gamma(3.0, 2.0))
        numpyro.sample("y", _families(dist, jnp)[name](w * x, s), obs=y)

    def of_messenger(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        handler = (
            handlers.scale(scale=2.5) if "scale" in name else handlers.mask(mask=x > (-0.5 if "mask" in name else -9.0))
        )
        with handler:
            numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)
        if "factor" in name:
            numpyro.factor("penalty", -0.5 * jnp.abs(x * w))

    return {"latent": of_prior, "observed": of_family, "messenger": of_messenger}[kind]


def _moments(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means ``[2, E]`` of bounded functions of draws ``[C, S, ...]``, and their Monte Carlo errors: tails may be heavy."""
    flat = draws.reshape(*draws.shape[:2], -1)
    functions = np.stack([np.tanh(flat), np.tanh(flat) ** 2])
    effective = np.array([[float(az.ess(each[..., i])) for i in range(each.shape[-1])] for each in functions])
    return functions.mean((1, 2)), functions.std((1, 2)) / np.sqrt(effective)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind"), ROWS, ids=lambda part: part)
def test_the_posterior_is_numpyros(name: str, kind: str) -> None:
    numpyro = pytest.importorskip("numpyro", reason="needs numpyro")
    jax, jnp = pytest.importorskip("jax"), pytest.importorskip("jax.numpy")
    model = {"latent": LATENT, "observed": OBSERVED, "messenger": MESSENGERS}[kind][name]
    size = {"num_chains": 4, "num_warmup": 500, "num_draws": 1000}
    ours = bz.to_datatree(bz.fit(model, bz.NUTS(**size, target_accept=0.9), X, Y, progress=False))["posterior"]
    outcome = OUTCOMES.get(name, lambda y: y)(Y) if kind == "observed" else Y
    kernel = numpyro.infer.NUTS(_text(name, kind), target_accept_prob=0.9)
    with jax.enable_x64(True):
        chains = numpyro.infer.MCMC(
            kernel, num_warmup=500, num_samples=1000, num_chains=4, chain_method="sequential", progress_bar=False
        )
        chains.run(jax.random.PRNGKey(0), jnp.asarray(X.numpy()), jnp.asarray(outcome.numpy()))
        theirs = {site: np.asarray(each) for site, each in chains.get_samples(group_by_chain=True).items()}
    for site in ours.data_vars:
        (own, own_error), (other, error) = _moments(ours[site].to_numpy()), _moments(theirs[site])
        bound = 4.5 * np.hypot(own_error, error) + 1e-8  # and for entries that are constant
        differs = ~(np.abs(own - other) <= bound) & (
            np.nan_to_num(own_error, nan=0.0) + np.nan_to_num(error, nan=0.0) > 1e-12
        )
        assert not differs.any(), (site, own, other, bound)
