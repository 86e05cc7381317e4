"""Importance weights of an approximation's draws, and the moments of the posterior by them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.log_joints import log_joint_at, log_joint_of_some
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.types import Whole
from bnnzoo.core.verdict.pareto import pareto_k, smoothed

__all__ = [
    "NUM_DRAWS",
    "Shift",
    "WeightedDraws",
    "alike",
    "drawn_from",
    "draws_together",
    "log_weights_of",
    "many_draws_of",
    "shift_by_weights",
    "smoothed_ratios",
]

NUM_DRAWS, FEW_DRAWS = 4000, 500  # of 500 and 1000 draws, Pareto k falls on different sides of 0.7 in one fit of six
MANY_DRAWS, MANY_NUMBERS = 50_000, 2_000_000  # for moments of an approximation itself, which cost no evaluation
EVALUATIONS = 6_000_000  # rows times draws, as long as there are FEW_DRAWS: a tenth of a short fit


class WeightedDraws(NamedTuple):
    """Draws ``[S, P]`` of an approximation, and log p - log q ``[S]`` at each, minus infinity where p cannot be computed."""

    theta: Tensor
    log_ratios: Tensor


class Shift(NamedTuple):
    """What an approximation's moments are off by, for each number ``[D]`` of the latent sites, with standard errors.

    Attributes
    ----------
    mean, mean_error : Tensor
        Difference of the means over the posterior's standard deviation.
    log_sd, log_sd_error : Tensor
        Logarithm of the ratio of the approximation's standard deviation to the posterior's.
    """

    mean: Tensor
    mean_error: Tensor
    log_sd: Tensor
    log_sd_error: Tensor


def drawn_from(posterior: Posterior) -> WeightedDraws | None:
    """Return draws of an approximation and their log importance ratios; None where its density is not known."""
    density = posterior.density
    count = max(FEW_DRAWS, min(NUM_DRAWS, EVALUATIONS // max(1, density.num_data)))
    with torch.no_grad(), isolated(0, density.device):
        if posterior.log_prob(posterior.draws(1)[0]) is None:  # kept draws, which may be few
            return None
        theta, log_p = log_joint_of_some(density, draws_together(posterior, count))
        log_q = posterior.log_prob(theta)
    assert log_q is not None
    ratios = (log_p - log_q).cpu().double()
    return WeightedDraws(theta, ratios.masked_fill(ratios.isnan(), -math.inf))


def alike(theta: Tensor) -> WeightedDraws:
    """Return draws ``[S, P]`` that all count the same."""
    return WeightedDraws(theta, theta.new_zeros(len(theta), dtype=torch.float64, device="cpu"))


def many_draws_of(posterior: Posterior) -> Tensor:
    """Return so many draws ``[S, P]`` that moments have little error even where values are skewed, as chances near zero are."""
    count = max(NUM_DRAWS, min(MANY_DRAWS, MANY_NUMBERS // posterior.density.num_params))
    return draws_together(posterior, count)


def draws_together(posterior: Posterior, count: int, seed: Whole | None = None) -> Tensor:
    """Return at least ``count`` draws ``[S, P]`` of an approximation, as many of each of its components."""
    theta = posterior.draws(count, seed)
    return theta[:, : -(-count // len(theta))].flatten(0, 1)


def smoothed_ratios(density: LogDensity, theta: Tensor, log_q: Tensor) -> tuple[Tensor, float]:
    """Return log p - log q ``[S]`` at draws of q, the largest Pareto-smoothed, and their Pareto k.

    They are minus infinity where p is zero or cannot be computed, of which k takes no notice.
    """
    ratios = (log_joint_at(density, theta).double() - log_q.double()).cpu().nan_to_num(-math.inf)
    return smoothed(ratios), pareto_k(ratios[ratios.isfinite()])


def log_weights_of(log_ratios: Tensor) -> Tensor:
    """Return normalised log weights ``[S]``, the largest truncated at the root of their number times the mean.

    References
    ----------
    Ionides (2008), Truncated importance sampling, Journal of Computational and Graphical Statistics 17.
    """
    most = log_ratios.logsumexp(0) - 0.5 * math.log(len(log_ratios))
    truncated = log_ratios.minimum(most)
    return truncated - truncated.logsumexp(0)


def shift_by_weights(values: Tensor, log_ratios: Tensor) -> Shift:
    """Return how far the means and standard deviations of draws ``values[S, D]`` move when importance weights correct them.

    Standard errors are those of differences: weighted and plain moments are of the same draws.
    """
    weights = log_weights_of(log_ratios).exp()[:, None]
    plain = 1 / len(values)
    centre, middle = (weights * values).sum(0), values.mean(0)
    apart, spread = (values - centre).square(), (values - middle).square()
    variance, own = (weights * apart).sum(0), spread.mean(0)
    sd = variance.sqrt()
    influence = weights * (apart / variance - 1) - plain * (spread / own - 1)
    return Shift(
        (middle - centre) / sd,
        ((weights - plain) * (values - centre)).square().sum(0).sqrt() / sd,
        0.5 * (own.log() - variance.log()),
        0.5 * influence.square().sum(0).sqrt(),
    )
