"""The trajectory length of chains in lockstep, tuned during warm-up to the largest expected jump per gradient."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.inference.markov.hamiltonian.kernel import Matrix, applied
from bnnzoo.inference.markov.lockstep.dynamics import Point

__all__ = ["Jump", "Length", "initial_length", "jump_of_spread", "squared_jump", "update_length"]

type Jump = Callable[[Point, Point, Tensor, Tensor, Matrix], tuple[Tensor, Tensor]]
"""The last matrix gives differences of positions in units of the posterior."""

LEARNING_RATE, JUMP_DISCOUNT, AVERAGE_DISCOUNT = 0.05, 0.9, 0.98
LARGEST_JUMP = 3.0
"""Jumps are cut off at this multiple of the running mean."""
LARGEST_GAIN = 3.0
"""Bound on ``d log(jump) / d log(time)`` of one trajectory; where jumps grow like the square of the time it is 2."""


class Length(NamedTuple):
    """The tuned mean trajectory length, its average over iterations, and running means of the jump and of its slope."""

    log_length: float
    log_average: float
    jump: float
    slope: float

    @property
    def value(self) -> float:
        """Mean trajectory length as tuned so far."""
        return math.exp(self.log_length)

    def averaged(self) -> "Length":
        """Return the tuner at its average over iterations."""
        return self._replace(log_length=self.log_average)


def initial_length(length: float) -> Length:
    """Return the state of a tuner that starts at ``length`` and has observed nothing."""
    return Length(math.log(length), math.log(length), 0.0, 0.0)


def squared_jump(start: Point, end: Point, mean: Tensor, acceptance: Tensor, units: Matrix) -> tuple[Tensor, Tensor]:
    """Return each chain's expected squared jump in units of the posterior, and its derivative by integration time, each ``[C]``.

    With ``d = units (theta' - theta)``, acceptance probability a and final velocity v these are ``a d.d`` and ``2 a d.v``
    (Pasarica and Gelman 2010).
    """
    distance = applied(units, end.theta - start.theta)
    slope = _usable(2 * acceptance * (distance * end.momentum).sum(-1), acceptance)
    return _usable(acceptance * distance.square().sum(-1), acceptance), slope


def jump_of_spread(start: Point, end: Point, mean: Tensor, acceptance: Tensor, units: Matrix) -> tuple[Tensor, Tensor]:
    """Return each chain's expected squared jump of ``|z|^2 / 2``, and its derivative by the integration time, each ``[C]``.

    With ``z = units (theta - mean)``, acceptance probability a and final velocity v these are ``a (|z'|^2 - |z|^2)^2 / 4`` and
    ``a (|z'|^2 - |z|^2) z'.v``: it measures how well the spread mixes, which is harder than the mean (Hoffman et al. 2021).
    """
    old, new = (applied(units, each.theta - mean) for each in (start, end))
    change = new.square().sum(-1) - old.square().sum(-1)
    slope = _usable(acceptance * change * (new * end.momentum).sum(-1), acceptance)
    return _usable(0.25 * acceptance * change.square(), acceptance), slope


def update_length(state: Length, jumped: float, slope: float, time: float, bounds: tuple[float, float]) -> Length:
    """Move the mean length towards the largest jump per gradient evaluation.

    That is where ``d log(jump) / d log(time) = 1``. Single trajectories are noisy, and long ones more so: the contribution of
    each is bounded, as is the step on the log scale, and means run over about ten trajectories.

    Parameters
    ----------
    state : Length
    jumped, slope : float
        Means over chains of a measure of jumps and of its slope.
    time : float
        Length of the trajectories.
    bounds : tuple of float
        Smallest and largest mean length; the largest takes precedence.
    """
    share = min(1.0, LARGEST_JUMP * state.jump / jumped) if state.jump > 0 and jumped > 0 else 1.0
    jumped, gained = share * jumped, share * slope * time
    jumps = JUMP_DISCOUNT * state.jump + (1 - JUMP_DISCOUNT) * jumped
    # bounded by its own jump, too: far jumps gain much, and counting the jump without the gain would shorten trajectories
    bound = LARGEST_GAIN * max(jumps, jumped)
    gained = min(max(gained, -bound), bound)
    slopes = JUMP_DISCOUNT * state.slope + (1 - JUMP_DISCOUNT) * gained
    gain = slopes / jumps - 1 if jumps > 0 else 0.0
    length = math.exp(state.log_length + LEARNING_RATE * min(max(gain, -1.0), 1.0))
    log_length = math.log(min(max(length, bounds[0]), bounds[1]))
    return Length(log_length, AVERAGE_DISCOUNT * state.log_average + (1 - AVERAGE_DISCOUNT) * log_length, jumps, slopes)


def _usable(value: Tensor, acceptance: Tensor) -> Tensor:
    """Return zero where a trajectory diverged: its end may be infinitely far away, and is never accepted."""
    return torch.where(acceptance > 0, value, 0.0).nan_to_num(0.0, 0.0, 0.0)
