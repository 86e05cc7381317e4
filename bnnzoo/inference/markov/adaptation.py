"""Adaptation during warm-up, whatever the kernel: step size by dual averaging, windows, and moments of draws."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "CAREFUL",
    "CAUTION",
    "DIVERGED",
    "FEWEST_IN_WINDOW",
    "HIGHEST_TARGET",
    "NEAR",
    "START_BUFFER",
    "Adaptation",
    "Moments",
    "StepSize",
    "allowed_shortfall",
    "growing_windows",
    "initial_adaptation",
    "initial_step_size",
    "judged",
    "no_moments",
    "observe",
    "pooled_variances",
    "restart_step_size",
    "retuned_step_size",
    "search_step_size",
    "settle_step_size",
    "settling_from",
    "settling_gain",
    "shrunk",
    "update_step_size",
    "window_ends",
]

START_BUFFER, FIRST_WINDOW, END_BUFFER = 75, 25, 50
"""Stan's windows: draws in which only the step size adapts, first window of the mass matrix, and the fewest last draws."""

NARROWEST, GROWTH = 10, 1.5
"""Draws of the first of the windows that grow, and the factor by which they do."""

END_FRACTION = 0.15
"""Part of a long warm-up that follows the last window: the final step size comes from acceptance over that many draws."""

GAIN, TOTAL_GAIN = 0.1, 3.0
"""Gains with which a step size settles: the first, or in many draws the second by their number.

A gain of 0.1 remembers about 20 draws, which may all lie in a wide place; 0.03 remembers 70.
"""

CAUTION, CAREFUL = 0.25, 0.75
"""A step settles at ``target + CAUTION * (1 - target)``, and with the second where warm-up saw that the posterior is no Gaussian.

Measured: twenty fits of a centred hierarchy (``baseball`` of ``benchmarks/warm_up.py``) had 88 effective draws in the median with
a caution of 0, 105 with 0.25, 106 with 0.5; an effective draw of non-centred schools took 16, 17 and 23 gradients. With 0.75
``gp_pois_regr`` has 1,400 effective draws and 2 to 5 divergences, with 0.25 it has 1,200 and 13 to 59. With 0.25 alone a chain of
varying slopes by ``HMC``, whose trajectories go well for all of warm-up, had 389 divergences at one place.
"""

ACCEPTED, LONGEST, FEWEST_IN_WINDOW, FEWEST_JUDGED, HIGHEST_TARGET = 0.5, 1.3, 40, 60, 0.99
"""What :func:`judged` goes by: a fair acceptance, the longest step over the median, the fewest trajectories of a window and of
all windows together, and the highest target.

Trajectories accepted less than half the time fall short of a half by 0.3 to 0.5% in the mean where posteriors are close to
Gaussian and the target is 0.8, by 2 to 3% for non-centred schools, by 10% in a funnel. Neither the mean acceptance tells a narrow
place, nor divergences, of which there may be one in 4,000 trajectories, but some that break off among many that do not. Of
thirty-three fits of networks, eleven had divergences while the target was kept, and none has any; they take 1.2 times the
gradients.
"""

DIVERGED = -6.0
"""Acceptance as which a divergent trajectory counts while the step size settles; the mean over its steps may be 0.5 or more."""

FEWEST_AVERAGED = 33
"""Draws that dual averaging has after the last window before the step size settles, if there are so many."""

SHRINKAGE, STABILISER, AVERAGING_EXPONENT = 0.05, 10.0, 0.75
"""Dual averaging's gamma, t0 and kappa, as in Hoffman and Gelman (2014)."""

FAR, NEAR = 10.0, 2.0
"""How far above the step with which it begins dual averaging explores, in search of any step and from one that is about right."""

MAX_DOUBLINGS, CROSSED_ACCEPTANCE = 50, 0.8


class StepSize(NamedTuple):
    """State of dual averaging for one chain, all ``[]``."""

    log_step: Tensor
    log_average: Tensor
    error: Tensor
    anchor: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody calls here


class Moments(NamedTuple):
    """Number ``[C]``, running mean and centred second moment ``[C, P]`` of the draws of chains."""

    count: Tensor  # type: ignore[assignment]
    mean: Tensor
    second: Tensor


class Adaptation(NamedTuple):
    """What a chain has learnt about its step size during warm-up so far.

    Attributes
    ----------
    step_size : Tensor
    step : StepSize
    caution : Tensor
        Part of the way from the target to 1 at which the step size settles.
    target : Tensor
        Acceptance at which the step size aims.
    shortfall, num_judged : Tensor
        By how much the trajectories judged since the target last changed fell short of a half, and their number.
    """

    step_size: Tensor
    step: StepSize
    caution: Tensor
    target: Tensor
    shortfall: Tensor
    num_judged: Tensor


def initial_step_size(step_size: Tensor) -> StepSize:
    """Return the state of dual averaging before any draw; it is drawn towards ten times ``step_size``."""
    zeros = torch.zeros_like(step_size)
    return StepSize(step_size.log(), zeros.clone(), zeros.clone(), (FAR * step_size).log(), zeros.clone())


def initial_adaptation(step_size: Tensor, target: float) -> Adaptation:
    """Return what chains have learnt before any draw, which begin with step sizes ``[C]`` and aim at one acceptance."""
    zeros = torch.zeros_like(step_size)
    step = initial_step_size(step_size)
    return Adaptation(step_size, step, zeros + CAUTION, zeros + target, zeros.clone(), zeros.clone())


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


def update_step_size(state: StepSize, acceptance: Tensor, target: Tensor | float) -> StepSize:
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
    state: StepSize,
    acceptance: Tensor,
    target: Tensor | float,
    caution: Tensor | float = CAUTION,
    gain: Tensor | float = GAIN,
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


def judged(state: Adaptation, step_size: Tensor, acceptance: Tensor, diverging: Tensor) -> Adaptation:
    """Judge the trajectories of a window, and raise the target of chains ``[C]`` some of whose trajectories are hardly accepted.

    Such chains meet regions of high curvature, in which steps that suit the rest of the posterior are too long.

    Parameters
    ----------
    state : Adaptation
    step_size, acceptance, diverging : Tensor
        Of the trajectories, ``[C, N]``. Steps much longer than most, which dual averaging tries, do not count.
    """
    usual = step_size < LONGEST * step_size.median(1, keepdim=True).values
    usual &= usual.sum(1, keepdim=True) >= FEWEST_IN_WINDOW
    short = (1 - torch.where(diverging, DIVERGED, acceptance) / ACCEPTED).clamp(min=0)
    shortfall, number = state.shortfall + (short * usual).sum(1), state.num_judged + usual.sum(1)
    raises = (number >= FEWEST_JUDGED) & (shortfall > allowed_shortfall(state.target) * number)
    target = torch.maximum(state.target, ((1 + state.target) / 2).clamp(max=HIGHEST_TARGET))
    return state._replace(
        target=torch.where(raises, target, state.target),
        shortfall=torch.where(raises, 0.0, shortfall),
        num_judged=torch.where(raises, 0.0, number),
    )


def allowed_shortfall(target: Tensor) -> Tensor:
    """Return the mean shortfall from which a ``target`` is raised: 1% at 0.8.

    That of a Gaussian grows with the third power of its distance from 1 where this is larger: 1.7% at 0.7, 5 to 7% at 0.6.
    """
    distance = 1 - target
    return torch.maximum(0.05 * distance, 1.25 * distance**3)


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


def restart_step_size(state: StepSize, factor: Tensor, reach: float) -> StepSize:
    """Restart dual averaging at its average so far times ``factor``, drawn towards ``reach`` times that."""
    log_step = state.log_average + factor.log()
    zero = torch.zeros_like(log_step)
    return StepSize(log_step, log_step, zero, log_step + math.log(reach), zero)


def retuned_step_size(state: StepSize, growth: Tensor, first: bool) -> StepSize:
    """Return the state of dual averaging with which chains in lockstep continue under new scales: restarted, the last one, too.

    The first estimate replaces the identity, so the step size is rescaled. Later ones may differ from those before as much:
    early windows of a long and narrow posterior see a part of it only.
    """
    return restart_step_size(state, growth if first else torch.ones_like(growth), FAR)


def shrunk[Values: (Tensor, NDArray[np.float64])](covariance: Values, count: Any, identity: Any = 1.0) -> Values:
    """Return variances of ``count`` draws, or a covariance if the identity is given, shrunk towards 0.001 as in Stan.

    The prior has the weight of five draws.
    """
    return count / (count + 5) * covariance + 1e-3 * 5 / (count + 5) * identity


def no_moments(theta: Tensor) -> Moments:
    """Return empty moments for chains at ``theta[C, P]``."""
    return Moments(theta.new_zeros(len(theta)), torch.zeros_like(theta), torch.zeros_like(theta))


def observe(state: Moments, theta: Tensor) -> Moments:
    """Add a draw ``theta[C, P]`` of each chain to its running moments by Welford's update."""
    count, delta = state.count + 1, theta - state.mean
    mean = state.mean + delta / count[:, None]
    return Moments(count, mean, state.second + delta * (theta - mean))


def pooled_variances(moments: Moments) -> Tensor:
    """Return variances ``[P]`` within chains, pooled over all chains; differences between chains are left out.

    The posterior of a network has many equivalent modes, and scales that spanned them would be far too wide for any one mode.
    """
    count = len(moments.count) * (moments.count[0] - 1) + 1
    return shrunk(moments.second.sum(0) / (count - 1).clamp(min=1), count)


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


def growing_windows(num_warmup: int) -> tuple[int, ...]:
    """Return the numbers of draws after which a chain's own mass matrix is estimated; the first one is where collecting begins.

    Each is estimated from the draws of two windows. Together they are half of all draws so far, so that the way from the start
    is soon forgotten; the last one ends where that of :func:`window_ends` does.

    Examples
    --------
    >>> growing_windows(1000)
    (0, 10, 20, 30, 45, 67, 100, 150, 225, 337, 505, 850)
    """
    last = max(window_ends(num_warmup), default=0)
    if not last:
        return ()
    ends = [0]
    while (following := max(ends[-1] + NARROWEST, int(GROWTH * ends[-1]))) <= last / GROWTH:
        ends.append(following)
    return (*ends, last)
