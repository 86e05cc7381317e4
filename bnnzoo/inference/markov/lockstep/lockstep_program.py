"""One chain in lockstep as a program of the engine: steps of its dynamics, and the draws between which they lead."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.engine.program import Stage
from bnnzoo.inference.markov.hamiltonian.kernel import is_finite
from bnnzoo.inference.markov.lockstep.dynamics import Point, drift, second_half_kick
from bnnzoo.inference.markov.lockstep.motions import Common, LockstepState, Motion
from bnnzoo.inference.markov.noise import normals, uniforms

__all__ = [
    "NUM_STREAMS",
    "LockstepCounters",
    "LockstepMoving",
    "LockstepProgram",
    "LockstepResting",
    "LockstepSchedule",
    "at_rest",
]

NUM_STREAMS = 3
"""Random streams of a chain: uniform numbers that accept draws, normal ones of draws or steps, those of the first momentum."""


class LockstepMoving(NamedTuple):
    """What changes at every step: the chain on its way, its steps so far, and the number of them at which its draw ends."""

    state: LockstepState
    num_steps: Tensor
    stop: Tensor


class LockstepCounters(NamedTuple):
    """Numbers ``[]`` of a chain.

    Attributes
    ----------
    draws : Tensor
        Draws so far.
    begins : Tensor
        Steps before the current draw.
    rejected : Tensor
        Draws at whose end the log density could not be computed.
    """

    draws: Tensor
    begins: Tensor
    rejected: Tensor


class LockstepSchedule(NamedTuple):
    """Draws of warm-up, and the number of draws at which the chain waits, each ``[]``."""

    num_warmup: Tensor
    until: Tensor


class LockstepResting(NamedTuple):
    """What changes in stages.

    Attributes
    ----------
    start, drawn : Point
        Where the current way began, and the latest draw.
    stats : Tensor [K]
        Statistics of the latest draw.
    common : Common
        What the chain has in common with those that adapt with it.
    counters, schedule
    keys : Tensor [3]
    """

    start: Point
    drawn: Point
    stats: Tensor
    common: Common
    counters: LockstepCounters
    schedule: LockstepSchedule
    keys: Tensor


class LockstepHeld(NamedTuple):
    """What a step uses besides what moves."""

    common: Common
    key: Tensor


@dataclass(frozen=True)
class LockstepProgram:
    """A chain whose draws take as many steps as those of the chains beside it; see :class:`bnnzoo.engine.program.Program`.

    A chain waits after every draw of warm-up, from which it learns together with the others, and after its last draw.
    """

    motion: Motion

    @property
    def key(self) -> tuple[Motion]:
        """What stands for the program."""
        return (self.motion,)

    @property
    def begin(self) -> Stage:
        """Set out from the latest draw."""
        return Stage(_has_arrived, self._begun)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Draw."""
        return (Stage(_has_arrived, self._ended, _is_kept),)

    def going(self, moving: LockstepMoving, resting: LockstepResting) -> Tensor:
        """Return whether there are draws left before the chain waits."""
        return resting.counters.draws < resting.schedule.until

    def steps_left(self, moving: LockstepMoving) -> Tensor:
        """Return the number of steps to the next draw."""
        return moving.stop - moving.num_steps

    def held(self, resting: LockstepResting) -> LockstepHeld:
        """Return what chains have in common, and the key of the steps' noise."""
        return LockstepHeld(resting.common, resting.keys[1])

    def point(self, moving: LockstepMoving, held: LockstepHeld) -> tuple[Tensor, tuple[()], tuple[Point, Tensor]]:
        """Take the first half of a step, which may begin with noise."""
        point = moving.state.point
        if self.motion.noise_per_step:
            point = self.motion.refresh_partly(point, held.common.nu, _noise(held.key, moving.num_steps, point.theta))
        moved = drift(self.motion.dynamics, point, held.common.root, held.common.step_size)
        return moved.theta, (), (moved, point.log_density)

    def step(
        self, moving: LockstepMoving, held: LockstepHeld, ahead: tuple[Point, Tensor], value: Tensor, gradient: Tensor
    ) -> LockstepMoving:
        """Complete the step."""
        (moved, before), common, squares = ahead, held.common, moving.state.squares
        end = second_half_kick(self.motion.dynamics, moved, value, gradient, common.root, common.step_size)
        if self.motion.noise_per_step:
            squares = squares + (end.work - (end.log_density - before)).square()
        return moving._replace(state=LockstepState(end, squares), num_steps=moving.num_steps + 1)

    def _begun(self, moving: LockstepMoving, resting: LockstepResting) -> tuple[LockstepMoving, LockstepResting]:
        counters, start, common = resting.counters, resting.drawn, resting.common
        if not self.motion.noise_per_step:
            start = self.motion.begin(start, _noise(resting.keys[1], counters.draws, start.theta))
        stop = moving.num_steps + self.motion.num_steps(counters.draws, common)
        moving = LockstepMoving(LockstepState(start, torch.zeros_like(start.work)), moving.num_steps, stop)
        return moving, resting._replace(start=start, counters=counters._replace(begins=moving.num_steps))

    def _ended(self, moving: LockstepMoving, resting: LockstepResting) -> tuple[Any, ...]:
        counters, start, point = resting.counters, resting.start, moving.state.point
        uniform = uniforms(resting.keys[0], counters.draws, start.theta.dtype)
        num_steps = moving.num_steps - counters.begins
        drawn, stats = self.motion.end(start, moving.state, resting.common, num_steps, uniform)
        rejected = counters.rejected + ~is_finite(point.log_density, point.gradient)
        counters = counters._replace(draws=counters.draws + 1, rejected=rejected)
        return moving, resting._replace(drawn=drawn, stats=stats, counters=counters), (drawn.theta, stats)


def at_rest(
    motion: Motion, theta: Tensor, keys: Tensor, common: Common, num_warmup: int, num_total: int
) -> tuple[LockstepMoving, LockstepResting]:
    """Return the state of chains at ``theta[C, P]`` before they know the log density there, and have drawn nothing."""
    places = torch.arange(theta.shape[1]).to(keys)
    momentum = vmap(motion.dynamics.refresh)(normals(keys[:, 2:], places, theta.dtype))
    zeros, counts = torch.zeros_like(theta[:, 0]), torch.zeros_like(keys[:, 0])
    point = Point(theta, momentum, torch.zeros_like(theta), zeros, zeros)
    resting = LockstepResting(
        start=point,
        drawn=point,
        stats=torch.zeros(len(theta), len(motion.stats_names), dtype=torch.float64, device=theta.device),
        common=common,
        counters=LockstepCounters(counts, counts, counts),
        schedule=LockstepSchedule(counts + num_warmup, counts + (1 if num_warmup else num_total)),
        keys=keys,
    )
    return LockstepMoving(LockstepState(point, zeros), counts, counts), resting


def _noise(key: Tensor, number: Tensor, theta: Tensor) -> Tensor:
    """Return the standard normal numbers ``[P]`` of a draw, or of a step."""
    return normals(key, number * len(theta) + torch.arange(len(theta), device=theta.device), theta.dtype)


def _has_arrived(moving: LockstepMoving, resting: LockstepResting) -> Tensor:
    return moving.num_steps >= moving.stop


def _is_kept(moving: LockstepMoving, resting: LockstepResting) -> Tensor:
    return resting.counters.draws >= resting.schedule.num_warmup
