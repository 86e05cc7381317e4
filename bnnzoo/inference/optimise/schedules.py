"""Learning-rate schedules, as factors of the first value."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.settings import Count, Fraction, Positive, Range

__all__ = [
    "Constant",
    "Cosine",
    "Cyclical",
    "DecayToConstant",
    "LinearWarmup",
    "Schedule",
    "ScheduleName",
    "WarmRestarts",
    "schedule_named",
]

type ScheduleName = Literal["cosine", "constant"]


@runtime_checkable
class Schedule(Protocol):
    """The learning rate at every step, relative to that of the optimiser."""

    def factors(self, num_steps: int) -> Tensor:
        """Return the factor ``[num_steps]`` of the learning rate at each step, in double precision."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same learning rate at every step.

    Examples
    --------
    >>> Constant().factors(3).tolist()
    [1.0, 1.0, 1.0]
    """

    def factors(self, num_steps: int) -> Tensor:
        """Return ones ``[num_steps]``."""
        return torch.ones(num_steps, dtype=torch.float64)


@dataclass(frozen=True)
class Cosine:
    r"""Half a cosine, from 1 down to ``final``.

    .. math:: f + \frac{1 - f}{2} \left( 1 + \cos\frac{\pi t}{T} \right), \qquad t = 0, \dots, T - 1

    Parameters
    ----------
    final : float
        Factor f that the schedule falls to.

    Examples
    --------
    >>> [round(f, 3) for f in Cosine().factors(4).tolist()]
    [1.0, 0.854, 0.5, 0.146]
    """

    final: Annotated[float, Range(0, 1)] = 0.0

    def factors(self, num_steps: int) -> Tensor:
        """Return the factors ``[num_steps]``."""
        return self.final + (1 - self.final) * _half_cosine(_steps(num_steps), num_steps)


@dataclass(frozen=True)
class Cyclical:
    r"""Cosines in cycles of equal length, each from 1 down to nearly 0: explore, then settle in a mode, again and again.

    .. math:: \frac12 \left( 1 + \cos\frac{\pi \, (t \bmod L)}{L} \right), \qquad L = \lceil T / M \rceil

    Parameters
    ----------
    num_cycles : int
        Number of cycles M.

    References
    ----------
    Zhang, Li, Zhang, Chen and Wilson (2020), Cyclical stochastic gradient MCMC for Bayesian deep learning, ICLR. Huang et al.
    (2017), Snapshot ensembles: train 1, get M for free, ICLR.

    Examples
    --------
    >>> [round(f, 3) for f in Cyclical(2).factors(6).tolist()]
    [1.0, 0.75, 0.25, 1.0, 0.75, 0.25]
    """

    num_cycles: Count = 4

    def factors(self, num_steps: int) -> Tensor:
        """Return the factors ``[num_steps]``."""
        length = math.ceil(num_steps / self.num_cycles)
        return _half_cosine(_steps(num_steps) % length, length)


@dataclass(frozen=True)
class WarmRestarts:
    r"""Cosines whose periods grow: after each one the learning rate starts again from 1.

    .. math:: f + \frac{1 - f}{2} \left( 1 + \cos\frac{\pi \, t_i}{T_i} \right), \qquad T_{i+1} = m \, T_i

    with :math:`t_i` steps since the last restart.

    Parameters
    ----------
    first_period : int
        Steps of the first period :math:`T_0`.
    growth : int
        Factor m from one period to the next.
    final : float
        Factor f that each period falls to.

    References
    ----------
    Loshchilov and Hutter (2017), SGDR: stochastic gradient descent with warm restarts, ICLR.

    Examples
    --------
    >>> [round(f, 3) for f in WarmRestarts(2).factors(6).tolist()]
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146]
    """

    first_period: Count = 100
    growth: Count = 2
    final: Annotated[float, Range(0, 1)] = 0.0

    def factors(self, num_steps: int) -> Tensor:
        """Return the factors ``[num_steps]``."""
        factors, period = torch.empty(0, dtype=torch.float64), self.first_period
        while len(factors) < num_steps:
            factors = torch.cat([factors, _half_cosine(_steps(period), period)])
            period *= self.growth
        return self.final + (1 - self.final) * factors[:num_steps]


@dataclass(frozen=True)
class LinearWarmup:
    """A linear rise from 0 to 1 over the first steps, then another schedule over the rest.

    Parameters
    ----------
    fraction : float
        Fraction of the steps over which the learning rate rises; at least one step.
    then : Schedule
        What follows.

    References
    ----------
    Goyal et al. (2017), Accurate, large minibatch SGD: training ImageNet in 1 hour, arXiv:1706.02677.

    Examples
    --------
    >>> LinearWarmup(0.5, then=Constant()).factors(8).tolist()
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    fraction: Fraction = 0.1
    then: Schedule = field(default_factory=Cosine)

    def factors(self, num_steps: int) -> Tensor:
        """Return the factors ``[num_steps]``."""
        num_rising = min(num_steps, max(1, round(self.fraction * num_steps)))
        rise = (_steps(num_rising) + 1) / num_rising
        return torch.cat([rise, self.then.factors(num_steps - num_rising)])


@dataclass(frozen=True)
class DecayToConstant:
    """The schedule of stochastic weight averaging: a first rate, a linear decay, and then 1 for as long as is averaged.

    Parameters
    ----------
    start : float
        First factor, kept for half of the burn-in and then lowered, or raised, linearly to 1.
    burn_in : float
        Fraction of the steps before the average begins; 1 is reached after nine tenths of them.

    References
    ----------
    Izmailov, Podoprikhin, Garipov, Vetrov and Wilson (2018), Averaging weights leads to wider optima and better
    generalization, UAI.

    Examples
    --------
    >>> DecayToConstant(5.0, burn_in=0.8).factors(25)[[0, 9, 14, 18, 24]].round(decimals=6).tolist()
    [5.0, 5.0, 3.0, 1.0, 1.0]
    """

    start: Positive = 1.0
    burn_in: Annotated[float, Range(0, 1, open_high=True)] = 0.25

    def factors(self, num_steps: int) -> Tensor:
        """Return the factors ``[num_steps]``."""
        num_burnt = max(1.0, self.burn_in * num_steps)
        done = ((_steps(num_steps) / num_burnt - 0.5) / 0.4).clamp(0, 1)
        return self.start + (1 - self.start) * done


def schedule_named(name: ScheduleName) -> Schedule:
    """Return the schedule that a method's setting names."""
    return Cosine() if name == "cosine" else Constant()


def _steps(num_steps: int) -> Tensor:
    return torch.arange(num_steps, dtype=torch.float64)


def _half_cosine(t: Tensor, length: int) -> Tensor:
    return 0.5 * (1 + torch.cos(math.pi * t / max(1, length)))
