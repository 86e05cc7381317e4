"""A density whose moments are known, with correlated normal, skewed, bounded and heavy-tailed parameters, and draws from it."""

from functools import cache

import numpy as np
import pyro
import pyro.distributions as dist
import scipy.stats
import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.testing.monte_carlo import check_moments

__all__ = ["COVARIANCE", "check_draws", "closed_form", "density", "exact_draws"]

MEANS, SLOPE, NOISE = (1.0, -2.0), 1.2, 0.5
"""Of two normal parameters with a correlation of 0.92: ``b | a ~ N(mean of b + slope (a - mean of a), noise)``."""

SHAPE, BETA, DEGREES, COPIES = 2.0, (2.0, 3.0), 6.0, 2


def closed_form() -> None:
    """A model without data."""
    a = pyro.sample("a", dist.Normal(MEANS[0], 1.0))
    pyro.sample("b", dist.Normal(MEANS[1] + SLOPE * (a - MEANS[0]), NOISE))
    pyro.sample("skewed", dist.Gamma(torch.full((COPIES,), SHAPE), 1.0).to_event(1))
    pyro.sample("bounded", dist.Beta(torch.full((COPIES,), BETA[0]), BETA[1]).to_event(1))
    pyro.sample("heavy", dist.StudentT(torch.full((COPIES,), DEGREES)).to_event(1))


def _covariance() -> Tensor:
    widths = np.repeat([scipy.special.polygamma(1, SHAPE), sum(scipy.special.polygamma(1, BETA)), 1.5], COPIES)
    found = torch.diag(torch.tensor([1.0, SLOPE**2 + NOISE**2, *widths], dtype=torch.float64))
    found[0, 1] = found[1, 0] = SLOPE
    return found


COVARIANCE = _covariance()
"""Of the unconstrained parameters ``[P, P]``."""


@cache
def density() -> LogDensity:
    """Return the density, in double precision."""
    return build_density(closed_form, dtype=torch.float64)


def exact_draws(num: int, seed: int = 0) -> Tensor:
    """Return independent draws ``theta[num, P]``: chains that begin there need no warm-up."""
    rng = np.random.default_rng(seed)
    a = rng.normal(MEANS[0], 1.0, num)
    values = {
        "a": a,
        "b": MEANS[1] + SLOPE * (a - MEANS[0]) + rng.normal(0.0, NOISE, num),
        "skewed": rng.gamma(SHAPE, 1.0, (num, COPIES)),
        "bounded": rng.beta(*BETA, (num, COPIES)),
        "heavy": rng.standard_t(DEGREES, (num, COPIES)),
    }
    return vmap(density().unconstrain)({name: torch.from_numpy(value) for name, value in values.items()})


def check_draws(theta: Tensor, *, min_ess: float = 2000.0, accuracy: float = 0.0) -> None:
    """Check means and variances of draws ``theta[C, S, P]`` to five Monte Carlo standard errors.

    The heavy-tailed parameters are judged by their distribution function, which has all moments: it is uniform.
    """
    found = {name: value.numpy() for name, value in density().constrain(theta).items()}
    beta, uniform = scipy.stats.beta(*BETA), scipy.stats.uniform()
    exact = {
        "a": (found["a"], MEANS[0], 1.0),
        "b": (found["b"], MEANS[1], (SLOPE**2 + NOISE**2) ** 0.5),
        "b given a": (found["b"] - MEANS[1] - SLOPE * (found["a"] - MEANS[0]), 0.0, NOISE),
        "skewed": (found["skewed"], SHAPE, SHAPE**0.5),
        "bounded": (found["bounded"], beta.mean(), beta.std()),
        "heavy": (scipy.stats.t(DEGREES).cdf(found["heavy"]), uniform.mean(), uniform.std()),
    }
    for name, (values, mean, sd) in exact.items():
        check_moments(name, values, mean, sd, min_ess=min_ess, accuracy=accuracy)
