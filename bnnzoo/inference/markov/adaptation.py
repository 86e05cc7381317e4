"""Adaptation during warm-up, whatever the kernel: step size by dual averaging, mass matrix in windows."""

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.engine import pytree
from bnnzoo.inference.markov.hamiltonian.kernel import LowRank, Metric

__all__ = [
    "DIVERGED",
    "Adaptation",
    "MassMatrix",
    "Moments",
    "StepSize",
    "fisher_variances",
    "growth_of_narrowest",
    "identity_metric",
    "initial_step_size",
    "inverse_mass_of",
    "low_rank",
    "low_rank_metric",
    "metric_from",
    "metric_of",
    "no_moments",
    "observe",
    "pooled_variances",
    "restart_step_size",
    "retuned_step_size",
    "search_step_size",
    "settle_step_size",
    "settling_from",
    "settling_gain",
    "update_step_size",
    "window_ends",
]

type MassMatrix = Literal["diagonal", "dense", "fisher", "low_rank"]

START_BUFFER, FIRST_WINDOW, END_BUFFER = 75, 25, 50
"""Stan's windows: draws in which only the step size adapts, first window of the mass matrix, and the fewest last draws."""

END_FRACTION = 0.15
"""Part of a long warm-up that follows the last window: the final step size comes from acceptance over that many draws."""

GAIN, TOTAL_GAIN, CAUTION = 0.1, 3.0, 0.25
"""A step size settles at ``target + CAUTION * (1 - target)``, with the first gain or, in many draws, the second by their number.

A gain of 0.1 remembers about 20 draws, which may all lie in a wide place; 0.03 remembers 70.
"""

DIVERGED = -3.0
"""Acceptance as which a divergent trajectory counts while the step size settles; the mean over its steps may be 0.5 or more.

Measured with the gain above, in ten fits each of models of ``benchmarks/warm_up.py``: the fewest effective draws of
``gp_pois_regr`` were 1,055 with it and 211 without, the median of ``baseball`` 115 and 88. Without divergences nothing changes.
"""

FEWEST_AVERAGED = 33
"""Draws that dual averaging has after the last window before the step size settles, if there are so many."""

SHRINKAGE, STABILISER, AVERAGING_EXPONENT = 0.05, 10.0, 0.75
"""Dual averaging's gamma, t0 and kappa, as in Hoffman and Gelman (2014)."""

MAX_RANK, CUTOFF, REGULAR = 16, 2.0, 1e-5
"""Of a metric of low rank: directions at most, the eigenvalue from which they pay, and what is added to covariances."""

LEAST_INFORMATION = 1e-4
"""Product of the variances of draws and of gradients below which gradients are taken for constant: it is 1 for a Gaussian."""

MAX_DOUBLINGS, CROSSED_ACCEPTANCE = 50, 0.8


class StepSize(NamedTuple):
    """State of dual averaging for one chain, all ``[]``."""

    log_step: Tensor
    log_average: Tensor
    error: Tensor
    anchor: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody calls here


class Moments(NamedTuple):
    """Running mean and centred second moment ``[P]`` of the draws of one chain."""

    count: Tensor  # type: ignore[assignment]
    mean: Tensor
    second: Tensor


class Adaptation(NamedTuple):
    """What a chain has learnt about its step size during warm-up so far."""

    step_size: Tensor
    step: StepSize


def initial_step_size(step_size: Tensor) -> StepSize:
    """Return the state of dual averaging before any draw; it is drawn towards ten times ``step_size``."""
    zeros = torch.zeros_like(step_size)
    return StepSize(step_size.log(), zeros.clone(), zeros.clone(), (10 * step_size).log(), zeros.clone())


def search_step_size(acceptance: Callable[[Tensor], Tensor], step_size: Tensor) -> Tensor:
    """Double or halve each step size until the acceptance probability of a single step crosses 0.8.

    Parameters
    ----------
    acceptance : callable
        Acceptance probability of one step, for step sizes of the shape of ``step_size``.
    step_size : Tensor
        Where to begin: ``[C]``, or ``[]`` if chains share it.
    """
    upwards = acceptance(step_size) > CROSSED_ACCEPTANCE
    searching = torch.ones_like(upwards)
    for _ in range(MAX_DOUBLINGS):
        step_size = torch.where(searching, torch.where(upwards, 2 * step_size, step_size / 2), step_size)
        searching &= (acceptance(step_size) > CROSSED_ACCEPTANCE) == upwards
        if not bool(searching.any()):
            break
    return step_size


def update_step_size(state: StepSize, acceptance: Tensor, target: float) -> StepSize:
    """Move the step size of one chain towards the acceptance rate ``target`` by Nesterov's dual averaging.

    The update is that of Hoffman and Gelman (2014, section 3.2): the log step is
    ``anchor - sqrt(t) / gamma * error / (t + t0)``, and its average forgets early draws at the rate ``t^-kappa``.
    """
    count = state.count + 1
    error = state.error + (target - acceptance - state.error) / (count + STABILISER)
    log_step = state.anchor - count.sqrt() / SHRINKAGE * error
    weight = count**-AVERAGING_EXPONENT
    return StepSize(log_step, weight * log_step + (1 - weight) * state.log_average, error, state.anchor, count)


def settle_step_size(
    state: StepSize, acceptance: Tensor, target: float, caution: float = CAUTION, gain: Tensor | float = GAIN
) -> StepSize:
    """Move the average of dual averaging, with which the chain now moves, towards a rate somewhat above ``target``.

    The update is that of Robbins and Monro (1951), ``log_average += gain * (acceptance - wanted)``. Iterates of dual averaging
    scatter by half a unit, and acceptance is concave in the log step: their average is accepted more often than they are (0.82
    for a target of 0.7). And it hardly follows the chain: one that came to a narrow place late would stay there for good. Here
    each rejected trajectory shortens the step, by a twelfth with the largest gain, so that a chain that stands still soon moves
    again.
    """
    wanted = target + caution * (1 - target)
    return state._replace(log_average=state.log_average + gain * (acceptance - wanted))


def settling_gain(num_draws: Tensor) -> Tensor:
    """Return the gain with which a step size settles over ``num_draws`` ``[]`` draws."""
    return (TOTAL_GAIN / num_draws).clamp(max=GAIN)


def settling_from(num_warmup: int, fewest: int = FEWEST_AVERAGED) -> int:
    """Return the number of draws after which dual averaging ends, and its average settles: for two thirds of the last draws.

    Dual averaging has at least ``fewest`` draws after the last window, unless less than a third of them were left.

    Examples
    --------
    >>> settling_from(1000), settling_from(300)
    (900, 283)
    """
    rest = num_warmup - max(window_ends(num_warmup), default=0)
    return max(num_warmup - max(min(2 * rest // 3, rest - fewest), rest // 3, 1), 1)


def restart_step_size(state: StepSize, factor: Tensor) -> StepSize:
    """Restart dual averaging at its average so far times ``factor``."""
    log_step = state.log_average + factor.log()
    zero = torch.zeros_like(log_step)
    return StepSize(log_step, log_step, zero, log_step + math.log(10), zero)


def retuned_step_size(state: StepSize, growth: Tensor, first: bool) -> StepSize:
    """Return the state of dual averaging with which a chain continues under its new mass matrix: restarted, the last one, too.

    The first estimate replaces the identity, so the step size is rescaled. Later ones may differ from those before as much:
    early windows of a long and narrow posterior see a part of it only.
    """
    return restart_step_size(state, growth if first else torch.ones_like(growth))


def growth_of_narrowest(old: Metric, new: Metric) -> Tensor:
    """Return the factor by which a step can grow when one chain's mass matrix changes from the identity to an estimate.

    The narrowest direction limits a leapfrog step, and the estimate rescales it to unit width.
    """
    return (_variances(old) / _variances(new)).max().sqrt()


def no_moments(theta: Tensor) -> Moments:
    """Return empty moments for chains at ``theta[C, P]``."""
    return Moments(theta.new_zeros(len(theta)), torch.zeros_like(theta), torch.zeros_like(theta))


def observe(state: Moments, theta: Tensor) -> Moments:
    """Add a draw ``theta[P]`` of one chain to its running moments by Welford's update."""
    count, delta = state.count + 1, theta - state.mean
    mean = state.mean + delta / count
    return Moments(count, mean, state.second + delta * (theta - mean))


def pooled_variances(moments: Moments) -> Tensor:
    """Return variances ``[P]`` within chains, pooled over all chains; differences between chains are left out.

    The posterior of a network has many equivalent modes, and scales that spanned them would be far too wide for any one mode.
    """
    count = len(moments.count) * (moments.count[0] - 1) + 1
    return _shrunk(moments.second.sum(0) / (count - 1).clamp(min=1), count)


def metric_from(draws: Tensor, gradients: Tensor, mass_matrix: MassMatrix) -> Metric:
    """Return the mass matrix of one chain estimated from draws and gradients there, ``[n, P]`` each.

    Variances are shrunk towards 0.001 with the weight of five draws, as in Stan. With gradients the inverse mass is
    ``sqrt(var(theta) / var(gradient))``, the diagonal that minimises the Fisher divergence (Seyboldt et al. 2026), and
    ``low_rank`` adds the directions that this leaves wide or narrow.
    """
    number, size = draws.shape
    theta, gradient = draws.double(), gradients.double()
    if mass_matrix in ("diagonal", "dense"):
        centred = theta - theta.mean(0)
        second = centred.mT @ centred if mass_matrix == "dense" else centred.square().sum(0)
        found = _shrunk(second / max(number - 1, 1), torch.tensor(float(number)))
        metric = _diagonal(found) if mass_matrix == "diagonal" else _dense(found)
    else:
        variance = fisher_variances(theta, gradient)
        metric = _diagonal(variance) if mass_matrix == "fisher" else low_rank_metric(theta, gradient, variance)
    return pytree.tree_map(lambda value: value.to(draws), metric)


def fisher_variances(theta: Tensor, gradient: Tensor) -> Tensor:
    """Return the diagonal ``[P]`` that minimises the Fisher divergence: 1 where draws do not move, finite where gradients do not."""
    wide, steep = theta.var(0), gradient.var(0)
    steep = torch.maximum(steep, LEAST_INFORMATION / wide.clamp(min=1e-300))  # in the mean their product is 1 or more
    return torch.where(wide > 0, (wide / steep).sqrt(), torch.ones_like(wide)).clamp(1e-20, 1e20)


def low_rank_metric(theta: Tensor, gradient: Tensor, variance: Tensor, rank: int | None = None) -> Metric:
    """Return the inverse mass ``S (I + U (L - 1) U^T) S``, with S^2 the ``variance[P]``, and few directions U.

    In units of S the covariance that minimises the Fisher divergence is the geometric mean of that of the draws and of the
    inverse of that of the gradients, on what both span. Its eigenvectors with eigenvalues beyond ``CUTOFF`` are kept, at most
    ``rank`` of them; those far from 1 first.
    """
    scale, size = variance.sqrt(), theta.shape[1]
    rank = min(size, MAX_RANK) if rank is None else rank
    wide, steep = (value - value.mean(0) for value in (theta / scale, gradient * scale))
    if 2 * len(theta) < size:
        basis = torch.linalg.qr(torch.cat([wide, steep]).mT).Q
        wide, steep = wide @ basis, steep @ basis
    values, vectors = torch.linalg.eigh(_geometric_mean(_regular(wide), _regular(steep)))
    far = values.clamp(1e-12, 1e12).log()
    far = torch.where(far.abs() > math.log(CUTOFF), far, torch.zeros_like(far))
    kept = far.abs().topk(min(rank, len(far))).indices
    stretch, directions = far[kept].exp(), vectors[:, kept] * (far[kept] != 0)
    if 2 * len(theta) < size:
        directions = basis @ directions
    if len(kept) < rank:
        missing = rank - len(kept)
        stretch, directions = torch.cat([stretch, stretch.new_ones(missing)]), torch.cat([directions, directions.new_zeros(size, missing)], 1)
    return low_rank(scale, directions, stretch)


def low_rank(scale: Tensor, directions: Tensor, stretch: Tensor) -> Metric:
    """Return the mass matrix of one chain, from scales ``[P]``, directions ``[P, K]`` and their stretch ``[K]``."""
    inverse_mass = LowRank(scale, directions, stretch, scale)
    return Metric(inverse_mass, LowRank(1 / scale, directions, stretch.rsqrt(), torch.ones_like(scale)))


def _regular(values: Tensor) -> Tensor:
    """Return the covariance of ``values[n, d]``, a little of the identity added."""
    return values.mT @ values / len(values) + REGULAR * torch.eye(values.shape[1]).to(values)


def _geometric_mean(first: Tensor, second: Tensor) -> Tensor:
    """Return the matrix G with ``G second G = first``, for positive definite ones ``[d, d]``."""
    values, vectors = torch.linalg.eigh(second)
    values = values.clamp(min=REGULAR)
    root, inverse = ((vectors * values**power) @ vectors.mT for power in (0.5, -0.5))
    values, vectors = torch.linalg.eigh(root @ first @ root)
    return inverse @ ((vectors * values.clamp(min=0).sqrt()) @ vectors.mT) @ inverse


def _shrunk(covariance: Tensor, count: Tensor) -> Tensor:
    weight, floor = count / (count + 5), 1e-3 * 5 / (count + 5)
    return weight * covariance + (floor if covariance.ndim == 1 else floor * torch.eye(len(covariance)).to(covariance))


def inverse_mass_of(metric: Metric) -> dict[str, Tensor]:
    """Return what makes up mass matrices: ``inverse_mass`` ``[C, P]`` or ``[C, P, P]``; of a low rank its diagonal, and the rest.

    The rest are ``directions`` ``[C, P, K]`` and their ``stretch`` ``[C, K]``, as in :func:`low_rank_metric`.
    """
    inverse = metric.inverse_mass
    if isinstance(inverse, LowRank):
        return {"inverse_mass": inverse.left.square(), "directions": inverse.directions, "stretch": inverse.stretch}
    return {"inverse_mass": inverse}


def metric_of(found: Mapping[str, Tensor]) -> Metric:
    """Return mass matrices from what :func:`inverse_mass_of` returned."""
    inverse_mass = found["inverse_mass"]
    if "directions" in found:
        return low_rank(inverse_mass.sqrt(), found["directions"], found["stretch"])
    return _diagonal(inverse_mass) if inverse_mass.ndim == 2 else vmap(_dense)(inverse_mass)


def identity_metric(theta: Tensor, mass_matrix: MassMatrix) -> Metric:
    """Return unit mass matrices for chains at ``theta[C, P]``."""
    ones = torch.ones_like(theta)
    if mass_matrix == "dense":
        eye = torch.eye(theta.shape[1]).to(theta).expand(len(theta), -1, -1)
        return Metric(eye.clone(), eye.clone())
    if mass_matrix == "low_rank":
        rank = min(theta.shape[1], MAX_RANK)
        return low_rank(ones, theta.new_zeros(*theta.shape, rank), theta.new_ones(len(theta), rank))
    return Metric(ones, ones.clone())


def window_ends(num_warmup: int) -> tuple[int, ...]:
    """Return the numbers of draws after which the mass matrix is estimated; the first one is where collecting begins.

    Examples
    --------
    >>> window_ends(1000)
    (75, 100, 150, 250, 450, 850)
    """
    start, first, end = START_BUFFER, FIRST_WINDOW, max(END_BUFFER, int(END_FRACTION * num_warmup))
    if num_warmup < 20:
        return ()
    if num_warmup < start + first + end:
        start = end = int(END_FRACTION * num_warmup)
        return (start, num_warmup - end)
    ends, width = [start], first
    while ends[-1] + 3 * width <= num_warmup - end:
        ends.append(ends[-1] + width)
        width *= 2
    return (*ends, num_warmup - end)


def _variances(metric: Metric) -> Tensor:
    inverse = metric.inverse_mass
    if isinstance(inverse, LowRank):
        return inverse.left.square() * (1 + (inverse.directions.square() @ (inverse.stretch - 1)))
    return inverse if inverse.ndim == 1 else inverse.diagonal()


def _diagonal(variance: Tensor) -> Metric:
    return Metric(variance, variance.rsqrt())


def _dense(covariance: Tensor) -> Metric:
    tril = torch.linalg.cholesky(covariance)
    eye = torch.eye(len(tril)).to(tril)
    return Metric(covariance, torch.linalg.solve_triangular(tril, eye, upper=False).mT)
