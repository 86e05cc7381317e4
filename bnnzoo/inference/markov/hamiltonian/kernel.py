"""Shared parts of Hamiltonian kernels: mass matrix, leapfrog step and energy, written for one chain."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = [
    "DIVERGENCE_THRESHOLD",
    "Control",
    "Kernel",
    "LowRankMatrix",
    "Matrix",
    "Metric",
    "Phase",
    "applied",
    "drift",
    "energy",
    "is_finite",
    "momentum_from",
    "root_of",
    "transposed",
    "transposed_root",
    "velocity",
]

DIVERGENCE_THRESHOLD = 1000.0
"""Energy error above which a trajectory counts as divergent, as in Stan."""


class LowRankMatrix(NamedTuple):
    """The matrix ``diag(left) (I + directions diag(eigenvalues - 1) directions^T) diag(right)``.

    Attributes
    ----------
    left, right : Tensor
        Scales ``[P]`` of the parameters.
    directions : Tensor
        Orthonormal columns ``[P, K]``, or zeros where there are fewer.
    eigenvalues : Tensor
        Factors ``[K]`` along them.
    """

    left: Tensor
    directions: Tensor
    eigenvalues: Tensor
    right: Tensor


type Matrix = Tensor | LowRankMatrix
"""Of one chain: a diagonal ``[P]``, a dense matrix ``[P, P]``, or a diagonal and a matrix of low rank."""


class Metric(NamedTuple):
    """The mass matrix M of a chain: diagonal ``[P]``, dense ``[P, P]``, or a diagonal and a matrix of low rank.

    Attributes
    ----------
    inverse_mass : Tensor
        M^-1, an estimate of the posterior covariance.
    mass_sqrt : Tensor
        A matrix A with A A^T = M, which turns standard normal noise into momenta.
    """

    inverse_mass: Matrix
    mass_sqrt: Matrix


class Phase(NamedTuple):
    """A point of phase space: position, momentum, log density and its gradient, each for one chain."""

    theta: Tensor
    momentum: Tensor
    gradient: Tensor
    log_density: Tensor


def velocity(metric: Metric, momentum: Tensor) -> Tensor:
    """Return ``M^-1 momentum`` ``[P]``."""
    return applied(metric.inverse_mass, momentum)


def momentum_from(metric: Metric, noise: Tensor) -> Tensor:
    """Return a momentum ``[P]`` distributed as N(0, M), from standard normal ``noise[P]``."""
    return applied(metric.mass_sqrt, noise)


def transposed_root(metric: Metric, vector: Tensor) -> Tensor:
    """Return ``A^T vector`` ``[P]`` for ``A A^T = M``: a difference of draws, in units in which M is the identity."""
    return applied(transposed(metric.mass_sqrt), vector)


def root_of(metric: Metric) -> Matrix:
    """Return a matrix B with ``B B^T = M^-1``, which turns directions of unit length into those of the posterior."""
    inverse = metric.inverse_mass
    if isinstance(inverse, LowRankMatrix):
        return inverse._replace(eigenvalues=inverse.eigenvalues.sqrt(), right=torch.ones_like(inverse.right))
    if inverse.ndim == 1:
        return inverse.sqrt()
    return torch.linalg.cholesky(inverse)


def energy(metric: Metric, phase: Phase) -> Tensor:
    """Return the Hamiltonian ``momentum^T M^-1 momentum / 2 - log density`` ``[]``, plus infinity where it is not finite."""
    value = 0.5 * (phase.momentum * velocity(metric, phase.momentum)).sum() - phase.log_density
    return torch.where(value > -torch.inf, value, torch.inf)


def is_finite(log_density: Tensor, gradient: Tensor) -> Tensor:
    """Return whether log density ``[]`` and gradient ``[P]`` could be computed at a point ``[]``."""
    return log_density.isfinite() & gradient.isfinite().all()


def drift(metric: Metric, phase: Phase, step_size: Tensor) -> tuple[Tensor, Tensor]:
    """Take the first half of a leapfrog step and return the new position and the momentum at half time, ``[P]``.

    The whole step is ``r += e/2 g(theta); theta += e M^-1 r; r += e/2 g(theta)``; a negative step goes backward in time.
    """
    momentum = phase.momentum + 0.5 * step_size * phase.gradient
    return phase.theta + step_size * velocity(metric, momentum), momentum


def applied(matrix: Matrix, vector: Tensor) -> Tensor:
    """Return one chain's matrix times a vector ``[P]``, or times each row of ``[C, P]``."""
    is_one = vector.ndim == 1
    if isinstance(matrix, LowRankMatrix):
        scaled = matrix.right * vector
        along = (matrix.eigenvalues - 1) * (scaled @ matrix.directions)
        return matrix.left * (scaled + (matrix.directions @ along if is_one else along @ matrix.directions.mT))
    if matrix.ndim == 1:
        return matrix * vector
    return matrix @ vector if is_one else vector @ matrix.mT


def transposed(matrix: Matrix) -> Matrix:
    """Return the transpose of one chain's matrix."""
    if isinstance(matrix, LowRankMatrix):
        return matrix._replace(left=matrix.right, right=matrix.left)
    return matrix if matrix.ndim == 1 else matrix.mT


class Control(NamedTuple):
    """What the moving end of a trajectory needs to know, each ``[]`` for one chain.

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
class Kernel(Protocol):
    """A Hamiltonian kernel as three pure steps of one chain, so that the chains of a batch never wait for each other.

    Every call of ``leapfrog`` moves every chain by one leapfrog step, wherever its trajectory stands. Where the moving end says
    ``stop``, ``propose`` updates the trajectory and its proposal. Where the trajectory says ``done``, the proposal is the next
    draw, and ``begin`` starts another trajectory. ``uniforms`` are two numbers from (0, 1). ``num_proposals`` is the number of
    calls of ``propose`` for a trajectory of ``num_steps`` steps.
    """

    def finished_trajectory(self, phase: Phase) -> tuple[Any, Any]: ...
    def begin(
        self, end: Any, trajectory: Any, metric: Metric, step_size: Tensor, noise: Tensor, uniforms: Tensor
    ) -> tuple[Any, Any]: ...
    def leapfrog(self, end: Any, control: Control, phase: Phase, metric: Metric, uniform: Tensor) -> Any: ...
    def propose(self, end: Any, trajectory: Any, metric: Metric, uniforms: Tensor) -> tuple[Any, Any]: ...
    def num_proposals(self, num_steps: int) -> int: ...
