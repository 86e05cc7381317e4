"""Adaptation during warm-up, whatever the kernel: step size by dual averaging, mass matrix in windows."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.inference.markov.hamiltonian.kernel import Metric

__all__ = [
    "DIVERGED",
    "Adaptation",
    "MassMatrix",
    "Moments",
    "StepSize",
    "growth_of_narrowest",
    "identity_metric",
    "initial_adaptation",
    "initial_step_size",
    "metric_from",
    "metric_of",
    "no_moments",
    "observe",
    "pooled_moments",
    "restart_step_size",
    "retuned_step_size",
    "search_step_size",
    "settle_step_size",
    "settling_from",
    "settling_gain",
    "update_step_size",
    "window_ends",
]

type MassMatrix = Literal["diagonal", "dense", "fisher"]

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

MAX_DOUBLINGS, CROSSED_ACCEPTANCE = 50, 0.8


class StepSize(NamedTuple):
    """State of dual averaging for one chain, all ``[]``."""

    log_step: Tensor
    log_average: Tensor
    error: Tensor
    anchor: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody calls here


class Moments(NamedTuple):
    """Running mean and centred second moment of draws, and for ``fisher`` of gradients, of one chain."""

    count: Tensor  # type: ignore[assignment]
    mean: Tensor
    second: Tensor
    gradient_mean: Tensor
    gradient_second: Tensor


class Adaptation(NamedTuple):
    """What a chain has learnt during warm-up so far."""

    step_size: Tensor
    step: StepSize
    moments: Moments


def initial_adaptation(theta: Tensor, step_size: Tensor, mass_matrix: MassMatrix) -> Adaptation:
    """Return the state of adaptation for chains at ``theta[C, P]`` with ``step_size[C]``."""
    return Adaptation(step_size, initial_step_size(step_size), no_moments(theta, mass_matrix))


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


def no_moments(theta: Tensor, mass_matrix: MassMatrix) -> Moments:
    """Return empty moments for chains at ``theta[C, P]``."""
    chains, size = theta.shape
    second = theta.new_zeros(chains, size, size) if mass_matrix == "dense" else torch.zeros_like(theta)
    gradient = torch.zeros_like(theta) if mass_matrix == "fisher" else theta.new_zeros(chains, 0)
    return Moments(theta.new_zeros(chains), torch.zeros_like(theta), second, gradient, gradient.clone())


def observe(state: Moments, theta: Tensor, gradient: Tensor) -> Moments:
    """Add a draw ``theta[P]`` of one chain to its running moments by Welford's update."""
    count = state.count + 1
    mean, second = _welford(count, state.mean, state.second, theta)
    if state.gradient_mean.numel() == 0:
        return Moments(count, mean, second, state.gradient_mean, state.gradient_second)
    gradient_mean, gradient_second = _welford(count, state.gradient_mean, state.gradient_second, gradient)
    return Moments(count, mean, second, gradient_mean, gradient_second)


def pooled_moments(moments: Moments) -> Moments:
    """Return the moments within chains, pooled over all chains; differences between chains are left out.

    The posterior of a network has many equivalent modes, and scales that spanned them would be far too wide for any one mode.
    """
    num_chains, count = len(moments.count), moments.count[0]
    return Moments(num_chains * (count - 1) + 1, *(value.sum(0) for value in moments[1:]))


def metric_from(moments: Moments) -> Metric:
    """Return the mass matrix of one chain estimated from its running moments.

    The variance is shrunk towards 0.001 with the weight of five draws, as in Stan. With gradients the inverse mass is
    ``sqrt(var(theta) / var(gradient))``, the diagonal that minimises the Fisher divergence (Seyboldt et al. 2025).
    """
    count = moments.count
    if moments.gradient_mean.numel():
        return _diagonal(((moments.second + 1e-10) / (moments.gradient_second + 1e-10)).sqrt().clamp(1e-20, 1e20))
    covariance = moments.second / (count - 1).clamp(min=1)
    weight, floor = count / (count + 5), 1e-3 * 5 / (count + 5)
    if covariance.ndim == 1:
        return _diagonal(weight * covariance + floor)
    return _dense(weight * covariance + floor * torch.eye(len(covariance)).to(covariance))


def metric_of(inverse_mass: Tensor) -> Metric:
    """Return mass matrices of given inverses, ``[C, P]`` or ``[C, P, P]``."""
    return _diagonal(inverse_mass) if inverse_mass.ndim == 2 else vmap(_dense)(inverse_mass)


def identity_metric(theta: Tensor, mass_matrix: MassMatrix) -> Metric:
    """Return unit mass matrices for chains at ``theta[C, P]``."""
    if mass_matrix != "dense":
        return Metric(torch.ones_like(theta), torch.ones_like(theta))
    eye = torch.eye(theta.shape[1]).to(theta).expand(len(theta), -1, -1)
    return Metric(eye.clone(), eye.clone())


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


def _welford(count: Tensor, mean: Tensor, second: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    delta = value - mean
    mean = mean + delta / count
    rest = value - mean
    return mean, second + (delta * rest if second.ndim == 1 else torch.outer(delta, rest))


def _variances(metric: Metric) -> Tensor:
    return metric.inverse_mass if metric.inverse_mass.ndim == 1 else metric.inverse_mass.diagonal()


def _diagonal(variance: Tensor) -> Metric:
    return Metric(variance, variance.rsqrt())


def _dense(covariance: Tensor) -> Metric:
    tril = torch.linalg.cholesky(covariance)
    eye = torch.eye(len(tril)).to(tril)
    return Metric(covariance, torch.linalg.solve_triangular(tril, eye, upper=False).mT)
