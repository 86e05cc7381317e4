"""What Hamiltonian kernels share: the mass matrix, the leapfrog step and the energy, written for one chain."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = [
    "DIVERGENCE_THRESHOLD",
    "Control",
    "Kernel",
    "Leaf",
    "Metric",
    "Phase",
    "Tree",
    "choose",
    "drift",
    "energy",
    "momentum_from",
    "velocity",
]

DIVERGENCE_THRESHOLD = 1000.0
"""Energy error above which a trajectory counts as divergent, as in Stan."""


class Metric(NamedTuple):
    """The mass matrix M of a chain, diagonal ``[P]`` or dense ``[P, P]``.

    Attributes
    ----------
    inverse_mass : Tensor
        M^-1, an estimate of the posterior covariance.
    mass_sqrt : Tensor
        A matrix A with A A^T = M, which turns standard normal noise into a momentum.
    """

    inverse_mass: Tensor
    mass_sqrt: Tensor


class Phase(NamedTuple):
    """A point of phase space: position, momentum, log density and its gradient, each for one chain."""

    theta: Tensor
    momentum: Tensor
    gradient: Tensor
    log_density: Tensor


def velocity(metric: Metric, momentum: Tensor) -> Tensor:
    """Return ``M^-1 momentum`` ``[P]``."""
    return _apply(metric.inverse_mass, momentum)


def momentum_from(metric: Metric, noise: Tensor) -> Tensor:
    """Return a momentum ``[P]`` distributed as N(0, M) from standard normal ``noise[P]``."""
    return _apply(metric.mass_sqrt, noise)


def energy(metric: Metric, phase: Phase) -> Tensor:
    """Return the Hamiltonian ``momentum^T M^-1 momentum / 2 - log density`` ``[]``, infinite where it is not a number."""
    value = 0.5 * (phase.momentum * velocity(metric, phase.momentum)).sum() - phase.log_density
    return torch.where(value.isnan(), torch.inf, value)


def choose(condition: Tensor, yes: Phase, no: Phase) -> Phase:
    """Return ``yes`` or ``no``, for a condition ``[]``."""
    return Phase(*(torch.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def drift(metric: Metric, phase: Phase, step_size: Tensor) -> tuple[Tensor, Tensor]:
    """Take the first half of a leapfrog step and return the new position and the half-way momentum ``[P]``.

    The whole step is ``r += e/2 g(theta); theta += e M^-1 r; r += e/2 g(theta)``; a negative step goes back in time.
    """
    momentum = phase.momentum + 0.5 * step_size * phase.gradient
    return phase.theta + step_size * velocity(metric, momentum), momentum


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return matrix * vector if matrix.ndim == 1 else matrix @ vector


class Control(NamedTuple):
    """What a trajectory tells its moving end, each ``[]`` for one chain.

    Attributes
    ----------
    energy : Tensor
        Hamiltonian at the start of the trajectory.
    direction : Tensor
        1 forward or -1 backward in time.
    length : Tensor
        Number of leapfrog steps after which the moving end stops.
    """

    energy: Tensor
    direction: Tensor
    length: Tensor


@runtime_checkable
class Leaf(Protocol):
    """State of one chain that changes at every leapfrog step."""

    @property
    def phase(self) -> Phase: ...
    @property
    def sum_acceptance(self) -> Tensor: ...
    @property
    def num_steps(self) -> Tensor: ...
    @property
    def diverging(self) -> Tensor: ...
    @property
    def stop(self) -> Tensor: ...


@runtime_checkable
class Tree(Protocol):
    """State of one chain that changes when its moving end has stopped."""

    @property
    def control(self) -> Control: ...
    @property
    def proposal(self) -> Phase: ...
    @property
    def depth(self) -> Tensor: ...
    @property
    def done(self) -> Tensor: ...


@runtime_checkable
class Kernel(Protocol):
    """A Hamiltonian kernel as three pure steps of one chain, so that chains in one batch never wait for each other.

    Every call of ``leap`` moves every chain by one leapfrog step, wherever its trajectory stands. A chain whose leaf says
    ``stop`` is taken on by ``merge``; one whose tree says ``done`` has a draw, and ``begin`` starts its next trajectory.
    ``uniforms`` are two numbers from (0, 1). ``num_merges`` says how often a trajectory of so many steps is taken on.
    """

    def start(self, phase: Phase) -> tuple[Any, Any]: ...
    def begin(
        self, leaf: Any, tree: Any, metric: Metric, step_size: Tensor, noise: Tensor, uniforms: Tensor
    ) -> tuple[Any, Any]: ...
    def leap(self, leaf: Any, control: Control, phase: Phase, metric: Metric, uniform: Tensor) -> Any: ...
    def merge(self, leaf: Any, tree: Any, metric: Metric, uniforms: Tensor) -> tuple[Any, Any]: ...
    def num_merges(self, num_steps: int) -> int: ...
