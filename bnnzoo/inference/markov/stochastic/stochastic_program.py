"""One chain of a stochastic-gradient method as a program of the engine: steps on mini-batches, draws, and resets."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnnzoo.engine.program import Stage, where
from bnnzoo.inference.markov.noise import normals
from bnnzoo.inference.markov.stochastic.gradients import Anchor, GradientMoments, observed
from bnnzoo.inference.markov.stochastic.row_order import RowOrder
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Step, StochasticDynamics
from bnnzoo.inference.markov.stochastic.stochastic_settings import StepPlan

__all__ = [
    "NUM_STREAMS",
    "STATS",
    "Course",
    "Left",
    "StochasticChunk",
    "StochasticCounters",
    "StochasticProgram",
    "StochasticResting",
    "StochasticSchedule",
    "StochasticState",
    "Units",
    "course_of",
]

NUM_STREAMS = 4
"""Random streams of a chain: noise of steps, their rows, and the same for gradients from which scales are estimated."""

STATS = ("log_density_estimate", "n_steps", "diverging", "step_size")
"""Columns of the statistics kept of every draw."""

SHORTENED = 0.25
"""Factor of the step size of a chain that has been reset."""

RESETS_BEFORE_SHORTER = 3
"""Draws in a row at whose end a chain is reset, after which its steps are too long also outside warm-up."""


class StochasticState(NamedTuple):
    """What changes at every step.

    Attributes
    ----------
    theta : Tensor [P]
    carried : tuple of Tensor [P]
        What the dynamics carry from step to step, such as a momentum.
    moments : GradientMoments
        Of the gradients of the current window.
    value : Tensor []
        Estimate of the log density before the latest step.
    evaluated : tuple of Tensor [P]
        Position before the latest step, and what was carried there: at the end of a draw nothing has been evaluated yet.
    num_steps, stop : Tensor []
        Steps so far, and the number of them at which there is something else to do.
    """

    theta: Tensor
    carried: tuple[Tensor, ...]
    moments: GradientMoments
    value: Tensor
    evaluated: tuple[Tensor, ...]
    num_steps: Tensor
    stop: Tensor


class StochasticChunk(NamedTuple):
    """What some steps from number ``start[]`` on are given.

    Attributes
    ----------
    start : Tensor []
    numbers : Tensor [K, 2]
        Factors of the step size and of the noise.
    noise : Tensor [K, P]
    rows : tuple of Tensor [K, B]
        Nothing where each step sees all rows, or those that the caller reads.
    """

    start: Tensor
    numbers: Tensor
    noise: Tensor
    rows: tuple[Tensor, ...]


class Units(NamedTuple):
    """What is tuned: step size ``[]``, scales of the parameters and variance of the noise of gradients ``[P]``."""

    step_size: Tensor
    scale: Tensor
    gradient_noise: Tensor


class Left(NamedTuple):
    """What was known at the end of the latest draw, to which a diverged chain is reset; see :class:`StochasticState`."""

    evaluated: tuple[Tensor, ...]
    moments: GradientMoments
    value: Tensor


class StochasticCounters(NamedTuple):
    """Numbers ``[]`` of a chain.

    Attributes
    ----------
    draws : Tensor
        Draws so far.
    begins, ends : Tensor
        Steps before and after the current draw.
    in_a_row, resets : Tensor
        How many of the latest draws, and of all, ended with the chain being reset.
    """

    draws: Tensor
    begins: Tensor
    ends: Tensor
    in_a_row: Tensor
    resets: Tensor


class StochasticSchedule(NamedTuple):
    """The numbers of draws, and of steps, ``[]`` at which the chain waits."""

    until: Tensor
    renew: Tensor


class Course(NamedTuple):
    """What a chain does when, which never changes.

    Attributes
    ----------
    num_warmup, warm_steps : Tensor []
        Draws of warm-up, and steps of each.
    warm : Tensor [2]
        Factor of the step size in warm-up, and 1.
    steps : Tensor [D]
        Steps of the draws that are kept, over and over.
    table : Tensor [T, 2]
        Factor of the step size and of the noise of the steps after warm-up, over and over.
    """

    num_warmup: Tensor
    warm_steps: Tensor
    warm: Tensor
    steps: Tensor
    table: Tensor

    def steps_of(self, draw: Tensor) -> Tensor:
        """Return the number of steps ``[]`` of a draw."""
        place = (draw - self.num_warmup) % len(self.steps)
        return torch.where(draw < self.num_warmup, self.warm_steps, self.steps[place[None]].squeeze(0))

    def numbers(self, draw: Tensor, steps: Tensor) -> Tensor:
        """Return the factors ``[K, 2]`` of steps of a draw."""
        places = (steps - self.num_warmup * self.warm_steps) % len(self.table)
        return torch.where(draw < self.num_warmup, self.warm, self.table[places])


def course_of(plan: StepPlan, num_warmup: int, theta: Tensor) -> Course:
    """Return the course ``[C, ...]`` of chains at ``theta[C, P]``."""
    steps, table = plan.cycle()
    numbers = torch.tensor([[num_warmup, plan.steps_of_warmup]], device=theta.device)
    warm = theta.new_tensor([[plan.factor_of_warmup, 1.0]])
    parts = *numbers.unbind(1), warm, steps.to(numbers)[None], table.to(theta)[None]
    return Course(*(each.expand(len(theta), *each.shape[1:]).clone() for each in parts))


class StochasticResting(NamedTuple):
    """What changes in stages.

    Attributes
    ----------
    chunk, units, left, counters, schedule, course
    anchor : tuple of Tensor [P]
        Of the control variate, if there is one.
    waits, failed : Tensor []
        Whether anchor or rows are to be renewed, and whether the chain diverged in warm-up with a step size that is fixed.
    keys : Tensor [4]
    """

    chunk: StochasticChunk
    units: Units
    anchor: Anchor
    left: Left
    counters: StochasticCounters
    schedule: StochasticSchedule
    course: Course
    waits: Tensor
    failed: Tensor
    keys: Tensor


class StochasticHeld(NamedTuple):
    """What a step uses besides what moves."""

    chunk: StochasticChunk
    units: Units
    anchor: Anchor


@dataclass(frozen=True)
class StochasticProgram:
    """A chain of a stochastic-gradient method; see :class:`bnnzoo.engine.program.Program`.

    A cycle is a chunk of steps, whose random numbers are computed together; it ends with the draw. A chain waits at the end of
    each window of warm-up and after its last draw, and where its anchor or its rows are to be renewed.

    At the end of a draw a chain is reset where the density is not finite, or has fallen far: it repeats
    its draw and turns round, as chains do whose proposal is rejected. During warm-up its steps become shorter, and afterwards
    only if it does not get away: the step size that suited the end of the warm-up may be unstable elsewhere.

    Attributes
    ----------
    dynamics : StochasticDynamics
    order : RowOrder or None
        None where a step sees all rows, or those that the caller reads.
    chunk : int
        Number of steps K whose random numbers are computed together.
    deepest : float
        By how many nats the log density may fall from draw to draw.
    fixed : bool
        Whether the step size is given: it stays as it is, and a chain that diverges in warm-up has failed.
    """

    dynamics: StochasticDynamics
    order: RowOrder | None
    chunk: int
    deepest: float
    fixed: bool

    @property
    def key(self) -> tuple[Any, ...]:
        """What stands for the program."""
        return self.dynamics, self.order, self.chunk, self.deepest, self.fixed

    @property
    def begin(self) -> Stage:
        """Compute the random numbers of the next steps."""
        return Stage(_has_stopped, self._filled)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """End the draw, if the chunk of steps was its last."""
        return (Stage(_has_stopped, self._stopped, _is_kept),)

    def going(self, moving: StochasticState, resting: StochasticResting) -> Tensor:
        """Return whether the chain goes on by itself."""
        return (resting.counters.draws < resting.schedule.until) & ~resting.waits & ~resting.failed

    def steps_left(self, moving: StochasticState) -> Tensor:
        """Return how many steps are left in the chunk."""
        return moving.stop - moving.num_steps

    def held(self, resting: StochasticResting) -> StochasticHeld:
        """Return the random numbers of the steps, units, and the anchor."""
        return StochasticHeld(resting.chunk, resting.units, resting.anchor)

    def point(self, moving: StochasticState, held: StochasticHeld) -> tuple[Tensor, tuple[Any, ...], Tensor]:
        """Return the position, with the rows of the step and the anchor."""
        place = (moving.num_steps - held.chunk.start)[None]
        return moving.theta, (tuple(each[place].squeeze(0) for each in held.chunk.rows), held.anchor), place

    def step(
        self, moving: StochasticState, held: StochasticHeld, ahead: Tensor, value: Tensor, gradient: Tensor
    ) -> StochasticState:
        """Move along the gradient."""
        factor, noisy = held.chunk.numbers[ahead].squeeze(0).unbind()
        units, noise = held.units, held.chunk.noise[ahead].squeeze(0)
        step = Step(factor * units.step_size, units.scale, units.gradient_noise, noisy)
        move, carried = self.dynamics.move(gradient, moving.carried, step, noise)
        return moving._replace(
            theta=moving.theta + move,
            carried=carried,
            moments=observed(moving.moments, gradient),
            value=value,
            evaluated=(moving.theta, *moving.carried),
            num_steps=moving.num_steps + 1,
        )

    def _filled(self, moving: StochasticState, resting: StochasticResting) -> tuple[StochasticState, StochasticResting]:
        theta, start, keys, counters = moving.theta, moving.num_steps, resting.keys, resting.counters
        steps = start + torch.arange(self.chunk, device=theta.device)
        places = torch.arange(len(theta), device=theta.device)
        chunk = StochasticChunk(
            start=start,
            numbers=resting.course.numbers(counters.draws, steps),
            noise=normals(keys[0], steps[:, None] * len(theta) + places, theta.dtype),
            rows=() if self.order is None else (self.order.rows(keys[1], steps),),
        )
        stop = torch.minimum(torch.minimum(start + self.chunk, counters.ends), resting.schedule.renew)
        return moving._replace(stop=stop), resting._replace(chunk=chunk)

    def _stopped(
        self, moving: StochasticState, resting: StochasticResting
    ) -> tuple[StochasticState, StochasticResting, tuple[Tensor, Tensor]]:
        drawn = self._drawn(moving, resting)
        num_steps = moving.num_steps - resting.counters.begins
        after, rested = drawn
        diverged = rested.counters.in_a_row > 0
        stats = after.value, num_steps, diverged, rested.units.step_size
        row = after.evaluated[0], torch.stack([each.double() for each in stats])
        waits = moving.num_steps >= resting.schedule.renew
        moving, resting = where(_has_drawn(moving, resting), drawn, (moving, resting))
        return moving, resting._replace(waits=waits), row

    def _drawn(self, moving: StochasticState, resting: StochasticResting) -> tuple[StochasticState, StochasticResting]:
        left, counters, course, units = resting.left, resting.counters, resting.course, resting.units
        diverged = (moving.value < left.value - self.deepest) | ~(
            moving.theta.isfinite().all() & moving.value.isfinite()
        )
        in_a_row, warm = torch.where(diverged, counters.in_a_row + 1, 0), counters.draws < course.num_warmup
        if not self.fixed:
            shorter = diverged & (warm | (in_a_row % RESETS_BEFORE_SHORTER == 0))
            size = units.step_size
            units = units._replace(step_size=torch.where(shorter, SHORTENED * size, size))
        place, *carried = left.evaluated
        turned = place, *self.dynamics.reversed(tuple(carried))
        theta, *carried = where(diverged, turned, (moving.theta, *moving.carried))
        left = Left(
            evaluated=where(diverged, turned, moving.evaluated),
            moments=where(diverged, left.moments, moving.moments),
            value=torch.where(diverged, left.value, moving.value),
        )
        now = moving._replace(theta=theta, carried=tuple(carried), **left._asdict())
        draws, begins = counters.draws + 1, moving.num_steps
        counters = StochasticCounters(
            draws, begins, begins + course.steps_of(draws), in_a_row, counters.resets + diverged
        )
        failed = resting.failed | (diverged & warm) if self.fixed else resting.failed
        return now, resting._replace(units=units, left=left, counters=counters, failed=failed)


def _has_stopped(moving: StochasticState, resting: StochasticResting) -> Tensor:
    return moving.num_steps >= moving.stop


def _has_drawn(moving: StochasticState, resting: StochasticResting) -> Tensor:
    return moving.num_steps >= resting.counters.ends


def _is_kept(moving: StochasticState, resting: StochasticResting) -> Tensor:
    return _has_drawn(moving, resting) & (resting.counters.draws >= resting.course.num_warmup)
