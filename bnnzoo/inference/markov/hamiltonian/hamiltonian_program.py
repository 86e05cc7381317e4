"""One chain of a Hamiltonian kernel as a program of the engine: leapfrog steps, proposals, adaptation and draws."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnnzoo.engine.program import Stage, where
from bnnzoo.inference.markov.adaptation import DIVERGED, Adaptation, settle_step_size, settling_gain, update_step_size
from bnnzoo.inference.markov.hamiltonian.kernel import Control, Kernel, Metric, Phase, drift, energy, is_finite
from bnnzoo.inference.markov.noise import normals, uniforms

__all__ = [
    "NUM_STREAMS",
    "STATS",
    "HamiltonianCounters",
    "HamiltonianProgram",
    "HamiltonianResting",
    "HamiltonianSchedule",
    "MovingEnd",
]

NUM_STREAMS = 4
"""Random streams of a chain: momenta, starts of trajectories, proposals, leapfrog steps."""

STATS = ("lp", "energy", "acceptance_rate", "n_steps", "tree_depth", "diverging", "step_size")
"""Columns of the statistics kept of every draw."""


class MovingEnd(NamedTuple):
    """What changes at every leapfrog step: the moving end of the trajectory, and the number of steps so far."""

    end: Any
    num_leapfrog: Tensor


class HamiltonianCounters(NamedTuple):
    """Numbers ``[]`` of a chain's draws and proposals so far, and of points at which the log density could not be computed."""

    draws: Tensor
    proposals: Tensor
    rejected: Tensor


class HamiltonianSchedule(NamedTuple):
    """Numbers of draws ``[]`` that say what happens when.

    Attributes
    ----------
    num_warmup : Tensor
        Draws of warm-up.
    settle_from : Tensor
        At which the step size begins to settle.
    collect_from, collect_until : Tensor
        Between which draws of warm-up are kept, from which mass matrices are estimated.
    until : Tensor
        At which a window of the adaptation, or the chain, ends.
    """

    num_warmup: Tensor
    settle_from: Tensor
    collect_from: Tensor
    collect_until: Tensor
    until: Tensor


class HamiltonianResting(NamedTuple):
    """What changes in stages: the trajectory, what the chain has learnt, its counters, schedule and keys ``[4]``.

    ``tempering`` is empty, or the inverse temperature ``[]`` of a chain that has one.
    """

    trajectory: Any
    metric: Metric
    adaptation: Adaptation
    counters: HamiltonianCounters
    schedule: HamiltonianSchedule
    keys: Tensor
    tempering: Any = ()


class HamiltonianHeld(NamedTuple):
    """What a leapfrog step uses besides the moving end."""

    metric: Metric
    step_size: Tensor
    control: Control
    key: Tensor
    tempering: Any = ()


@dataclass(frozen=True)
class HamiltonianProgram:
    """A chain of a Hamiltonian kernel; see :class:`bnnzoo.engine.program.Program`.

    A step is a leapfrog step. Where the moving end stops, the trajectory and its proposal are updated. Where the trajectory is
    done, its proposal is the next draw, from which the chain learns during warm-up. A chain waits at the end of each window of
    the adaptation, and after its last draw.
    """

    kernel: Kernel

    @property
    def key(self) -> tuple[Any, ...]:
        """What stands for the program."""
        return (self.kernel,)

    @property
    def begin(self) -> Stage:
        """Start the next trajectory at the last draw."""
        return Stage(_is_done, self._begun)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Propose, and keep the draw."""
        return Stage(_has_stopped, self._proposed), Stage(_is_done, self._learnt, _is_kept)

    def going(self, moving: MovingEnd, resting: HamiltonianResting) -> Tensor:
        """Return whether the window, or the chain, has draws left."""
        return resting.counters.draws < resting.schedule.until

    def steps_left(self, moving: MovingEnd) -> Tensor:
        """Return 1 as long as the trajectory goes on."""
        going: Tensor = ~moving.end.stop
        return going.long()

    def value(self, tempering: Any, value: Tensor, gradient: Tensor) -> Tensor:
        """Return the log density ``[]`` of the chain's target, from what the gradient function returned."""
        return value

    def force(self, tempering: Any, gradient: Tensor) -> Tensor:
        """Return the gradient ``[P]`` of the chain's target, from that of the gradient function."""
        return gradient

    def held(self, resting: HamiltonianResting) -> HamiltonianHeld:
        """Return what a leapfrog step uses of what changes in stages, and the key of the leapfrog steps' numbers."""
        return HamiltonianHeld(
            resting.metric,
            resting.adaptation.step_size,
            resting.trajectory.control,
            resting.keys[3],
            resting.tempering,
        )

    def point(self, moving: MovingEnd, held: HamiltonianHeld) -> tuple[Tensor, tuple[()], tuple[Tensor, ...]]:
        """Take the first half of a leapfrog step."""
        signed = held.step_size * held.control.direction
        phase = moving.end.phase
        phase = phase._replace(gradient=self.force(held.tempering, phase.gradient))
        theta, momentum = drift(held.metric, phase, signed)
        return theta, (), (theta, momentum, signed)

    def step(
        self, moving: MovingEnd, held: HamiltonianHeld, ahead: tuple[Tensor, ...], value: Tensor, gradient: Tensor
    ) -> MovingEnd:
        """Complete the leapfrog step with the second half of the kick."""
        theta, momentum, signed = ahead
        momentum = momentum + 0.5 * signed * self.force(held.tempering, gradient)
        phase = Phase(theta, momentum, gradient, self.value(held.tempering, value, gradient))
        uniform = uniforms(held.key, moving.num_leapfrog, theta.dtype)
        return MovingEnd(
            self.kernel.leapfrog(moving.end, held.control, phase, held.metric, uniform), moving.num_leapfrog + 1
        )

    def _begun(self, moving: MovingEnd, resting: HamiltonianResting) -> tuple[MovingEnd, HamiltonianResting]:
        count, theta = resting.counters.draws, resting.trajectory.proposal.theta
        places = torch.arange(len(theta), device=theta.device)
        noise = normals(resting.keys[0], count * len(theta) + places, theta.dtype)
        uniform = _pair(resting.keys[1], count, theta)
        step_size = resting.adaptation.step_size
        end, trajectory = self.kernel.begin(moving.end, resting.trajectory, resting.metric, step_size, noise, uniform)
        return moving._replace(end=end), resting._replace(trajectory=trajectory)

    def _proposed(self, moving: MovingEnd, resting: HamiltonianResting) -> tuple[MovingEnd, HamiltonianResting]:
        counters, phase = resting.counters, moving.end.phase
        uniform = _pair(resting.keys[2], counters.proposals, phase.theta)
        end, trajectory = self.kernel.propose(moving.end, resting.trajectory, resting.metric, uniform)
        rejected = counters.rejected + ~is_finite(phase.log_density, phase.gradient)
        counters = counters._replace(proposals=counters.proposals + 1, rejected=rejected)
        return moving._replace(end=end), resting._replace(trajectory=trajectory, counters=counters)

    def _learnt(
        self, moving: MovingEnd, resting: HamiltonianResting
    ) -> tuple[MovingEnd, HamiltonianResting, tuple[Tensor, Tensor, Tensor]]:
        count, schedule, state = resting.counters.draws, resting.schedule, resting.adaptation
        warm, settling = count < schedule.num_warmup, count >= schedule.settle_from
        proposal, end = resting.trajectory.proposal, moving.end
        acceptance = end.sum_acceptance / end.num_steps
        gain = settling_gain((schedule.num_warmup - schedule.settle_from).clamp(min=1).to(acceptance))
        found = torch.where(end.diverging, DIVERGED, acceptance)  # the mean over its steps hides a divergence
        settled = settle_step_size(state.step, found, state.target, state.caution, gain)
        step = where(settling, settled, update_step_size(state.step, acceptance, state.target))
        step = where(warm, step, state.step)
        tuned = torch.where(settling, step.log_average, step.log_step).exp()
        learnt = state._replace(step_size=torch.where(warm, tuned, state.step_size), step=step)
        path = end.num_steps, resting.trajectory.depth, end.diverging
        stats = proposal.log_density, energy(resting.metric, proposal), acceptance, *path, state.step_size
        counters = resting.counters._replace(draws=count + 1)
        slope = self.force(resting.tempering, proposal.gradient)
        row = proposal.theta, torch.stack([value.double() for value in stats]), slope
        return moving, resting._replace(adaptation=learnt, counters=counters), row


def _has_stopped(moving: MovingEnd, resting: HamiltonianResting) -> Tensor:
    stop: Tensor = moving.end.stop
    return stop


def _is_done(moving: MovingEnd, resting: HamiltonianResting) -> Tensor:
    done: Tensor = resting.trajectory.done
    return done


def _is_kept(moving: MovingEnd, resting: HamiltonianResting) -> Tensor:
    count, schedule = resting.counters.draws, resting.schedule
    collected = (count >= schedule.collect_from) & (count < schedule.collect_until)
    return collected | (count >= schedule.num_warmup)


def _pair(key: Tensor, count: Tensor, theta: Tensor) -> Tensor:
    return uniforms(key, 2 * count + torch.arange(2, device=theta.device), theta.dtype)
