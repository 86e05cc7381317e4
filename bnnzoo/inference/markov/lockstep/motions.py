"""Moves of a chain in lockstep from one draw to the next, written for one chain: begin, step and end."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.engine.program import where
from bnnzoo.inference.markov.hamiltonian.kernel import DIVERGENCE_THRESHOLD, Matrix, is_finite
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics, Microcanonical, Point

__all__ = [
    "DYNAMICS",
    "Common",
    "LangevinMotion",
    "LockstepState",
    "Motion",
    "Trajectories",
    "metropolis",
    "partly_refreshed",
    "statistics",
    "with_reversed_momentum",
]

DYNAMICS = Microcanonical()
GOLDEN_RATIO = 0.5 * (5**0.5 - 1)


class Common(NamedTuple):
    """What chains in lockstep have in common.

    Attributes
    ----------
    root : Matrix
        A matrix B, where ``B B^T`` is the posterior's covariance as estimated so far.
    step_size, nu : Tensor []
        Step size, and strength of the noise of a step.
    length : Tensor []
        Mean length of trajectories, in double precision.
    steps : Tensor []
        Number of steps of a draw, or the most that a trajectory takes.
    offset : Tensor []
        From (0, 1), in double precision: where the sequence of trajectory lengths begins.
    """

    root: Matrix
    step_size: Tensor
    nu: Tensor
    length: Tensor
    steps: Tensor
    offset: Tensor


class LockstepState(NamedTuple):
    """A chain on its way: where it is, and the sum of its steps' squared energy changes ``[]`` since the last draw."""

    point: Point
    squares: Tensor


@runtime_checkable
class Motion(Protocol):
    """One chain between two draws.

    ``begin`` returns the start of a draw from the last one, ``num_steps`` how many steps lead to the next, ``turn`` the point
    before a step, ``end`` the next draw with its statistics. ``noise_per_step`` says whether normal numbers are drawn for each
    step or for each draw, ``stats_names`` what the statistics are.
    """

    noise_per_step: ClassVar[bool]

    @property
    def stats_names(self) -> tuple[str, ...]: ...

    @property
    def dynamics(self) -> Dynamics: ...
    def begin(self, start: Point, noise: Tensor) -> Point: ...
    def num_steps(self, draw: Tensor, common: Common) -> Tensor: ...
    def refresh_partly(self, point: Point, nu: Tensor, noise: Tensor) -> Point: ...
    def end(
        self, start: Point, moving: LockstepState, common: Common, num_steps: Tensor, uniform: Tensor
    ) -> tuple[Point, Tensor]: ...


@dataclass(frozen=True)
class Trajectories:
    """Trajectories with a new momentum at their start and a Metropolis step at their end."""

    dynamics: Dynamics
    noise_per_step: ClassVar[bool] = False

    @property
    def stats_names(self) -> tuple[str, ...]:
        """Statistics of a trajectory; of microcanonical ones the change of the energy is reported, not the energy."""
        energy = "energy_error" if isinstance(self.dynamics, Microcanonical) else "energy"
        return "lp", energy, "acceptance_rate", "n_steps", "diverging", "step_size"

    def begin(self, start: Point, noise: Tensor) -> Point:
        """Return the start of a trajectory, with a momentum from ``noise[P]``."""
        return start._replace(momentum=self.dynamics.refresh(noise), work=torch.zeros_like(start.work))

    def num_steps(self, draw: Tensor, common: Common) -> Tensor:
        """Return a number of steps: lengths are uniform on (0, 2 mean), so that no period of the posterior resonates."""
        fraction = 2 * torch.remainder(common.offset + draw * GOLDEN_RATIO, 1.0)
        steps = torch.ceil(fraction * common.length / common.step_size.double())
        return torch.minimum(steps.clamp(1, 1e9).long(), common.steps)

    def refresh_partly(self, point: Point, nu: Tensor, noise: Tensor) -> Point:
        """Return the point as it is."""
        return point

    def end(
        self, start: Point, moving: LockstepState, common: Common, num_steps: Tensor, uniform: Tensor
    ) -> tuple[Point, Tensor]:
        """Accept the end of the trajectory or stay."""
        point, error, acceptance = metropolis(start, moving.point, uniform)
        return point, statistics(self.dynamics, start, point, error, acceptance, num_steps, common.step_size)


@dataclass(frozen=True)
class LangevinMotion:
    """Microcanonical Langevin dynamics: every step begins with noise, and no end is rejected for its energy error."""

    dynamics: ClassVar[Dynamics] = DYNAMICS
    noise_per_step: ClassVar[bool] = True
    stats_names: ClassVar[tuple[str, ...]] = "lp", "energy_error", "n_steps", "diverging", "step_size"

    def begin(self, start: Point, noise: Tensor) -> Point:
        """Return the last draw: its direction is kept."""
        return start

    def num_steps(self, draw: Tensor, common: Common) -> Tensor:
        """Return the number of steps that all draws take."""
        return common.steps

    def refresh_partly(self, point: Point, nu: Tensor, noise: Tensor) -> Point:
        """Refresh a part of the momentum."""
        return partly_refreshed(point, nu, noise)

    def end(
        self, start: Point, moving: LockstepState, common: Common, num_steps: Tensor, uniform: Tensor
    ) -> tuple[Point, Tensor]:
        """Keep the last point, or the start where the log density could not be computed."""
        error = moving.squares / (num_steps * len(start.theta))
        failed = ~is_finite(moving.point.log_density, moving.point.gradient) | ~error.isfinite()
        point = where(failed, with_reversed_momentum(start), moving.point)
        error = torch.where(failed, torch.inf, error)
        return point, _row(point.log_density, error, num_steps, failed, common.step_size)


def partly_refreshed(point: Point, nu: Tensor, noise: Tensor) -> Point:
    """Return a point of Langevin dynamics before its next step: the direction becomes ``u + nu z`` at unit length."""
    momentum = DYNAMICS.refresh(point.momentum + nu * noise)
    return point._replace(momentum=momentum, work=torch.zeros_like(point.work))


def with_reversed_momentum(start: Point) -> Point:
    """Return a point that is left in the opposite direction."""
    return start._replace(momentum=-start.momentum)


def metropolis(start: Point, end: Point, uniform: Tensor) -> tuple[Point, Tensor, Tensor]:
    """Accept a trajectory with probability ``min(1, exp(-energy error))``.

    Returns
    -------
    point : Point
        From where the chain continues.
    error, acceptance : Tensor
        Energy error, plus infinity where it is not finite, and acceptance probability ``[]``.
    """
    error = end.work - (end.log_density - start.log_density)
    error = torch.where(error > -torch.inf, error, torch.inf)
    return where(uniform.log() < -error, end, start), error, (-error).exp().clamp(max=1.0)


def statistics(
    dynamics: Dynamics,
    start: Point,
    point: Point,
    error: Tensor,
    acceptance: Tensor,
    num_steps: Tensor,
    step_size: Tensor,
) -> Tensor:
    """Return what is kept of one trajectory besides the draw ``point``, ``[6]``."""
    moved = (point.theta != start.theta).any()
    energy = dynamics.energy(start, torch.where(moved, error, 0.0))
    return _row(point.log_density, energy, acceptance, num_steps, error > DIVERGENCE_THRESHOLD, step_size)


def _row(first: Tensor, *others: Tensor) -> Tensor:
    like = first.to(torch.float64)
    return torch.stack([like, *(each.to(like) for each in others)])
