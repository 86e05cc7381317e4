"""The two ways in which members train: as copies of a program in native code, or all in one batch of graphs."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.program.turns import aside
from bnnzoo.engine import pytree
from bnnzoo.engine.choose import FIRST_BUDGET, FIRST_FLOPS, MAX_NATIVE_FLOPS, MAX_NATIVE_MEMBERS, next_budget
from bnnzoo.engine.fleet import NativeCopies
from bnnzoo.engine.lowered import ENGINES, Lowered
from bnnzoo.engine.reports import EngineLog, ran_as
from bnnzoo.engine.runner import native_copies
from bnnzoo.inference.optimise.objectives import Objective, ObjectiveInputs
from bnnzoo.inference.optimise.optimisers import Optimiser, State
from bnnzoo.inference.optimise.training_program import (
    StepInputs,
    TrainingPlan,
    TrainingProgram,
    TrainingState,
    member_gradient,
    moved,
    retreated,
)
from bnnzoo.inference.optimise.training_run import STEPS_PER_LOOK, Run, StepArguments, Trained, tensors_of

__all__ = ["BatchedTraining", "NativeTraining", "TrainingEngine", "native_training"]

TRIAL_STEP_FACTOR = 1e-3
"""Factor of the steps with which native code is tried: gradients lost in rounding differ in sign, and so do Adam's steps then."""


def native_training(
    run: Run, first: StepArguments, same_rows: bool, log: EngineLog, *, is_asked: bool = False
) -> "NativeTraining | None":
    """Return members that train in native code, or None where that does not pay, unless it is asked for, or cannot be done.

    Parameters
    ----------
    run : Run
        Of so many steps that compiling pays.
    first : StepArguments
        What the first step is given.
    same_rows : bool
        Whether every step sees the same rows.
    log : EngineLog
        Takes down why it cannot be done.
    is_asked : bool
        Whether native code was asked for, whatever pays.
    """
    num_members, num_params = run.start.shape
    if run.start.device.type != "cpu" or (num_members > MAX_NATIVE_MEMBERS and not is_asked):
        return None
    first = pytree.tree_map_only(Tensor, Tensor.contiguous, first)  # once, and not for each member
    is_observed = run.observe is not None
    inputs = StepInputs(first, same_rows, num_members, run.table.shape[1] + (num_params if is_observed else 0))
    found = member_gradient(run, first, same_rows, inputs)
    if found is None:
        return None
    gradient, data = found
    copies = native_copies(
        TrainingProgram(run.optimiser, run.num_own),
        gradient,
        *_trial(run, inputs.max_steps),
        max_flops=math.inf if is_asked else MAX_NATIVE_FLOPS,
        counts_flops=True,
        compiles="cpp",
        log=log,
        data=data,
    )
    return None if copies is None else NativeTraining(run, copies, inputs)


def _trial(run: Run, max_steps: int) -> tuple[TrainingState, TrainingPlan]:
    """Return members that are about to take a few small steps, with a look at whether they are stuck, to be traced and tried."""
    start, (num_members, num_params) = run.start, run.start.shape
    taken, nothing = torch.full((num_members,), STEPS_PER_LOOK - 2), start.new_zeros(num_members)
    num_rows = max_steps + 1 if run.observe is not None else 0
    moving = TrainingState(
        start,
        start,
        run.optimiser.start(start),
        nothing,
        nothing,
        taken,
        taken,
        start.new_zeros(num_members, max_steps, 1),
        start.new_zeros(1, num_rows, num_params).expand(num_members, -1, -1),
    )
    table = TRIAL_STEP_FACTOR * run.table[:1].repeat(max_steps, 1)
    return moving, TrainingPlan(start, taken, taken + min(max_steps, 3), table.expand(num_members, *table.shape))


class NativeTraining:
    """Members that train in native code, each on its own, side by side in threads, many steps a call.

    Parameters
    ----------
    run : Run
    copies : NativeCopies
        Of the program of a member's training.
    inputs : StepInputs
        The memory from which they read what steps are given.

    Attributes
    ----------
    copies, inputs
    budget : int
        The most steps of the next chunk.
    reads_steps : bool
        Whether steps are given anything, such as random numbers or rows of their own.
    keeps_iterates : bool
        Whether the iterates of a whole chunk are there.
    """

    keeps_iterates = True

    def __init__(self, run: Run, copies: NativeCopies, inputs: StepInputs) -> None:
        self.copies, self.inputs, self.reads_steps = copies, inputs, inputs.holds_anything
        self._state: TrainingState = copies.moving
        self._plan: TrainingPlan = copies.resting
        self._changing = pytree.tree_leaves((self._state[:-2], self._plan.good))  # all but the rows of a chunk
        zeros = [torch.zeros_like(each) for each in self._state[3:-2]]
        self._restore(pytree.tree_leaves((run.start, run.start, run.optimiser.start(run.start), *zeros, run.start)))
        self._before: list[Tensor] = []
        most = FIRST_FLOPS // max(copies.flops * copies.num_copies, 1)
        self.budget = max(1, min(FIRST_BUDGET, inputs.max_steps, most))
        self._seconds_per_step = 0.0

    def advance(self, table: Tensor, given: Sequence[StepArguments]) -> Tensor:
        """Take a step for each row of ``table[n, K]``, and return the objective ``[C, n]`` before each of them."""
        num_steps = len(table)
        self._plan.table[:, :num_steps] = table
        self.inputs.write(given)
        self._plan.start.copy_(self._state.taken)
        self._before = [each.clone() for each in self._changing]
        self._go(num_steps)
        return self._state.values[:, :num_steps, 0].clone()

    def iterates(self, num_steps: int) -> Tensor:
        """Return the iterates ``[C, n, Q]`` after the steps of a chunk, if they are observed; valid until the next one."""
        self._state.iterates[:, num_steps] = self._state.params
        return self._state.iterates[:, 1 : num_steps + 1]

    def go_back(self, taken: int) -> None:
        """Be where ``taken`` steps led, all of them those of the last chunk or before it."""
        if not bool((self._state.taken == taken).all()):
            self._restore(self._before)
            self._go(taken - int(self._state.taken[0]))

    def ended(self, trace: Tensor, complete: bool) -> Trained:
        """Return where members are."""
        params, moments, good = pytree.tree_map(torch.clone, (self._state.params, self._state.moments, self._plan.good))
        return Trained(params, moments, trace, complete, good)

    def _go(self, num_steps: int) -> None:
        """Take steps of a chunk, from its first one."""
        self._plan.until.copy_(self._state.taken + num_steps)
        began = time.perf_counter()
        with aside(num_steps * self._seconds_per_step or math.inf):
            while bool((self._state.taken < self._plan.until).any()):
                self.copies.advance()
        seconds = max(time.perf_counter() - began, 1e-9)
        self._seconds_per_step = seconds / num_steps if num_steps else 0.0
        self.budget = min(next_budget(self.budget, num_steps, seconds), self.inputs.max_steps)

    def _restore(self, values: Sequence[Tensor]) -> None:
        for view, value in zip(self._changing, values, strict=True):
            view.copy_(value)


class BatchedTraining:
    """All members in one batch: one call from Python a step, with the interface of :class:`NativeTraining`.

    Parameters
    ----------
    run : Run
    first : StepArguments
        What the first step is given.
    reasons : tuple of str
        Why not in native code.
    """

    budget, reads_steps, keeps_iterates = 1, True, False

    def __init__(self, run: Run, first: StepArguments, reasons: tuple[str, ...]) -> None:
        start, optimiser, num_own = run.start, run.optimiser, run.num_own
        self._constants, self._batch, self._tensors = run.constants, first.batch, tensors_of(first.batch)
        self._now = start, optimiser.start(start), start, start.new_zeros(len(start)), 0
        self._before = self._now
        one_step = run.shared(("step", optimiser, num_own), lambda: _lowered_step(run.objective, optimiser, num_own))
        example = start, self._now[1], run.table[0], run.constants, first.noise, first.batch
        specialized = one_step.specialize(*example, num_calls=run.num_steps)
        ran_as(ENGINES[specialized.how], reasons)
        self._step = specialized.flat

    def advance(self, table: Tensor, given: Sequence[StepArguments]) -> Tensor:
        """Take the one step."""
        ((batch, noise),) = given
        if batch is not self._batch:
            self._batch, self._tensors = batch, tensors_of(batch)
        self._before = before, moments, good, last, taken = self._now
        with torch.no_grad():
            params, *state, value = self._step(before, *moments, table[0], *self._constants, *noise, *self._tensors)
        if (taken + 1) % STEPS_PER_LOOK == 0:
            if bool(value.isnan().any()):
                params, good = retreated(before, params, good, last, value)
            else:
                good = before
        self._now = params, tuple(state), good, value, taken + 1
        return value[:, None]

    def iterates(self, num_steps: int) -> Tensor:
        """Return the iterate after the step."""
        return self._now[0][:, None]

    def go_back(self, taken: int) -> None:
        """Be where the step began, if it does not count."""
        if self._now[-1] != taken:
            self._now = self._before

    def ended(self, trace: Tensor, complete: bool) -> Trained:
        """Return where members are."""
        params, moments, good, _, _ = self._now
        return Trained(params, moments, trace, complete, good)


type TrainingEngine = NativeTraining | BatchedTraining


def _lowered_step(objective: Objective, optimiser: Optimiser, num_own: int) -> Lowered:
    """Return ``(params, state, row of the table, constants, noise, batch) -> (params, *state, value)``."""

    def stepping(value_and_grad: Callable[[Tensor, ObjectiveInputs], tuple[Tensor, Tensor]]) -> Callable[..., Any]:
        def step(params: Tensor, state: State, row: Tensor, *given: Any) -> tuple[Tensor, ...]:
            numbers = row.unbind()
            value, gradient = value_and_grad(params, ObjectiveInputs(numbers[num_own:], *given))
            params, state, value = moved(optimiser, params, state, numbers[:num_own], value, gradient)
            return params, *state, value

        return step

    return Lowered(stepping(objective.value_and_grad), stepping(objective.looped_value_and_grad))
