"""Pareto k of an approximation's importance weights, cheap enough for the end of a fit."""

import math

import torch
from torch import Tensor

__all__ = ["MAX_PARETO_K", "pareto_k", "smoothed"]

MAX_PARETO_K = 0.7
"""Pareto k above which importance weights cannot correct an approximation (Vehtari et al. 2024)."""

MIN_DRAWS = 25  # whose largest fifth is a tail
LONG = 225  # draws, from which on the tail is three times their square root
PRIOR_WEIGHT = 10  # of draws whose k is 0.5
LARGEST_SPAN = 690.0  # of log weights within double precision
EQUAL_WITHIN = 1e-3  # if log weights differ by less, their tail is rounding error


def pareto_k(log_ratios: Tensor) -> float:
    """Return the shape of the generalised Pareto distribution that fits the largest ratios, as ArviZ computes it.

    NaN if some ratios are not finite, they are fewer than 25, or their tail is that of no such distribution; infinite where the
    largest are equal or most weights vanish beside them, and minus infinity where all are equal.

    Examples
    --------
    >>> uniform = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    >>> round(pareto_k(-0.4 * uniform.log()), 1)  # weights with the tail of a Pareto distribution of shape 0.4
    0.4

    References
    ----------
    Zhang and Stephens (2009), A new and efficient estimation method for the generalized Pareto distribution, Technometrics 51.
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25.
    """
    if not bool(log_ratios.isfinite().all()) or len(log_ratios) < MIN_DRAWS:
        return math.nan
    if float(log_ratios.max() - log_ratios.min()) < EQUAL_WITHIN:
        return -math.inf
    ordered = (log_ratios - log_ratios.max()).sort().values
    size = _tail(len(ordered))
    if ordered[-size] == ordered[-1] or ordered[-math.floor(0.75 * size) - 1] < -LARGEST_SPAN:
        return math.inf
    return _shape_and_scale(ordered[-size:].exp() - ordered[-size - 1].exp())[0]


def smoothed(log_ratios: Tensor) -> Tensor:
    """Return log ratios ``[S]``, the largest replaced by quantiles of the distribution that :func:`pareto_k` fits.

    Ratios without such a tail stay as they are. Minus infinity stands for draws of no weight.

    Examples
    --------
    >>> smoothed(torch.tensor([0.0, 1.0]))
    tensor([0., 1.])

    References
    ----------
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25.
    """
    if len(log_ratios) < MIN_DRAWS or not math.isfinite(pareto_k(log_ratios.nan_to_num(neginf=-1e300))):
        return log_ratios
    largest = log_ratios.max()
    ordered, places = (log_ratios - largest).sort()
    size = _tail(len(ordered))
    cutoff = ordered[-size - 1].exp()
    shape, scale = _shape_and_scale(ordered[-size:].exp() - cutoff)
    levels = torch.log1p(-(torch.arange(size, dtype=ordered.dtype) + 0.5) / size)
    excess = -scale * levels if shape == 0.0 else scale * torch.expm1(-shape * levels) / shape
    ordered = torch.cat([ordered[:-size], (cutoff + excess).log().clamp(max=0.0)])
    return torch.empty_like(ordered).scatter(0, places, ordered) + largest


def _tail(count: int) -> int:
    """Return how many of the largest ratios are a tail."""
    return count // 5 if count <= LONG else math.floor(3 * count**0.5)


def _shape_and_scale(excess: Tensor) -> tuple[float, float]:
    """Return the posterior mean of the shape over a grid of scales, and the scale, for exceedances ``[M]`` in ascending order.

    NaN if a quarter of them are equal: no generalised Pareto distribution has such a tail.
    """
    size = len(excess)
    grid = torch.arange(1, 31 + math.isqrt(size), dtype=excess.dtype)
    quartile = excess[int(size / 4 + 0.5) - 1]
    if quartile <= excess[0]:
        return math.nan, math.nan
    rate = 1 / excess[-1] + (1 - (len(grid) / (grid - 0.5)).sqrt()) / (3 * quartile)
    shape = torch.log1p(-rate[:, None] * excess).mean(1)
    weight = (size * ((-rate / shape).log() - shape - 1)).softmax(0)
    mean_rate = (weight * rate).sum()
    best = torch.log1p(-mean_rate * excess).mean()
    return float((size * best + 0.5 * PRIOR_WEIGHT) / (size + PRIOR_WEIGHT)), float(-best / mean_rate)
