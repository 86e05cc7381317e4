"""One member's training as a program of the engine, and the memory from which it reads what steps are given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from bnnzoo.engine import pytree
from bnnzoo.engine.program import GradientFunction, Stage
from bnnzoo.inference.optimise.batches import StepBatch
from bnnzoo.inference.optimise.objectives import MemberObjective, ObjectiveInputs, inputs_of_member
from bnnzoo.inference.optimise.optimisers import Optimiser, State
from bnnzoo.inference.optimise.training_run import STEPS_PER_LOOK, Run, StepArguments, tensors_of

__all__ = ["StepInputs", "TrainingPlan", "TrainingProgram", "TrainingState", "member_gradient", "moved", "retreated"]


MAX_STEPS, MAX_ENTRIES, MAX_ENTRIES_OF_ALL = 512, 1 << 20, 1 << 25
"""Steps of a chunk, and numbers that lie in memory for those of one member and of all."""


def moved(
    optimiser: Optimiser, params: Tensor, state: State, numbers: tuple[Tensor, ...], value: Tensor, gradient: Tensor
) -> tuple[Tensor, State, Tensor]:
    r"""Return parameters ``[C, Q]``, state of the optimiser and values ``[C]`` after a step of members, NaN where it is refused.

    .. math:: \phi_{t+1} = \phi_t + \Delta(\nabla f(\phi_t; \text{batch}_t, \epsilon_t), \eta_t)

    A member whose value or gradient is not finite stays where it is.
    """
    usable = gradient.isfinite().all(1, keepdim=True) & value.isfinite()[:, None]
    move, state = optimiser.move(torch.where(usable, gradient, 0.0), state, numbers)
    return params + torch.where(usable, move, 0.0), state, torch.where(usable[:, 0], value, torch.nan)


def retreated(before: Tensor, params: Tensor, good: Tensor, last: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the iterates ``[C, Q]``, of members refused twice in a row halfway back to ``good``, and the new ``good``.

    Parameters
    ----------
    before, params : Tensor [C, Q]
        Iterates before and after the step.
    good : Tensor [C, Q]
        The latest ones known to be good.
    last, value : Tensor [C]
        Values of the step before and of this one; NaN where it was refused.
    """
    refused = value.isnan()
    good = torch.where(refused[:, None], good, before)
    return torch.where((refused & last.isnan())[:, None], 0.5 * (good + params), params), good


class TrainingState(NamedTuple):
    """What changes at every step.

    Attributes
    ----------
    params, before : Tensor [Q]
        The iterate, and the one before it.
    moments : tuple of Tensor [Q]
        State of the optimiser.
    last, value : Tensor []
        The objective before the last step but one, and before the last one; NaN where that was refused.
    taken, stop : Tensor []
        Steps so far, and the number of them at which the cycle ends.
    values : Tensor [R, 1]
        The objective before each step of the chunk.
    iterates : Tensor [R + 1, Q]
        The iterates before them, and room for the last one; no rows where nobody looks at them.
    """

    params: Tensor
    before: Tensor
    moments: State
    last: Tensor
    value: Tensor
    taken: Tensor
    stop: Tensor
    values: Tensor
    iterates: Tensor


class TrainingPlan(NamedTuple):
    """What stays as it is from step to step.

    Attributes
    ----------
    good : Tensor [Q]
        The latest iterate known to be good.
    start, until : Tensor []
        Steps before the chunk, and after it.
    table : Tensor [R, K]
        Numbers of each step of the chunk.
    """

    good: Tensor
    start: Tensor
    until: Tensor
    table: Tensor


@dataclass(frozen=True)
class TrainingProgram:
    """The training of one member; see :class:`bnnzoo.engine.program.Program`.

    A cycle ends with the chunk of steps, or before that where it is looked whether the member is stuck.

    Attributes
    ----------
    optimiser : Optimiser
    num_own : int
        How many numbers of the table are the optimiser's, the first ones; the others are the objective's.
    """

    optimiser: Optimiser
    num_own: int

    @property
    def key(self) -> tuple[Optimiser, int]:
        """What stands for the program."""
        return self.optimiser, self.num_own

    @property
    def begin(self) -> Stage:
        """Set the end of the cycle."""

        def update(moving: TrainingState, resting: TrainingPlan) -> tuple[TrainingState, TrainingPlan]:
            look = moving.taken - moving.taken % STEPS_PER_LOOK + STEPS_PER_LOOK
            return moving._replace(stop=torch.minimum(look, resting.until)), resting

        return Stage(lambda moving, resting: moving.taken >= moving.stop, update)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Look whether the member is stuck, if it is time."""

        def update(moving: TrainingState, resting: TrainingPlan) -> tuple[TrainingState, TrainingPlan]:
            state = moving.before, moving.params, resting.good, moving.last, moving.value
            params, good = retreated(*(each[None] for each in state))
            return moving._replace(params=params[0]), resting._replace(good=good[0])

        def applies(moving: TrainingState, resting: TrainingPlan) -> Tensor:
            return (moving.taken >= moving.stop) & (moving.taken % STEPS_PER_LOOK == 0)

        return (Stage(applies, update),)

    def going(self, moving: TrainingState, resting: TrainingPlan) -> Tensor:
        """Return whether steps of the chunk are left."""
        return moving.taken < resting.until

    def steps_left(self, moving: TrainingState) -> Tensor:
        """Return how many steps are left in the cycle."""
        return moving.stop - moving.taken

    def held(self, resting: TrainingPlan) -> TrainingPlan:
        """Return everything."""
        return resting

    def point(
        self, moving: TrainingState, held: TrainingPlan
    ) -> tuple[Tensor, tuple[Tensor, tuple[Tensor, ...]], tuple[Tensor, tuple[Tensor, ...]]]:
        """Return the iterate, with the place of the step in the chunk and the objective's numbers."""
        place = (moving.taken - held.start).view(1)
        numbers = held.table.index_select(0, place).view(-1).unbind()
        return moving.params, (place, numbers[self.num_own :]), (place, numbers[: self.num_own])

    def step(
        self,
        moving: TrainingState,
        held: TrainingPlan,
        ahead: tuple[Tensor, tuple[Tensor, ...]],
        value: Tensor,
        gradient: Tensor,
    ) -> TrainingState:
        """Move along the gradient, and write down the step's row."""
        place, numbers = ahead
        state = tuple(each[None] for each in moving.moments)
        params, state, values = moved(self.optimiser, moving.params[None], state, numbers, value[None], gradient[None])
        rows = moving.iterates
        return TrainingState(
            params=params[0],
            before=moving.params,
            moments=tuple(each[0] for each in state),
            last=moving.value,
            value=values[0],
            taken=moving.taken + 1,
            stop=moving.stop,
            values=moving.values.index_put((place,), values[:, None]),
            iterates=rows.index_put((place,), moving.params[None]) if len(rows) else rows,
        )


class StepInputs:
    """Memory for the random numbers and rows of the steps of a chunk.

    Parameters
    ----------
    first : StepArguments
        What the first step is given, of the same shapes as all others.
    same_rows : bool
        Whether every step sees the same rows, which then need no memory here.
    num_members : int
    num_others : int
        Numbers of a step and member that lie in memory besides.

    Attributes
    ----------
    shapes : tuple of tuple of int
        Shape of each tensor of a step as one member sees it.
    max_steps : int
        Steps of a chunk R, the same for every length of a run: it is compiled in.
    has_own, holds_anything : bool
        Whether members are given something of their own, or steps anything at all.
    """

    def __init__(self, first: StepArguments, same_rows: bool, num_members: int, num_others: int) -> None:
        self._same_rows = same_rows
        self._own = [True] * len(first.noise) + ([] if same_rows else _are_own(first.batch))
        examples = self._tensors(first)
        self.has_own, self.holds_anything = any(self._own), bool(examples)
        self.shapes = tuple(tuple(each.shape[own:]) for each, own in zip(examples, self._own, strict=True))
        entries = num_others + sum(map(math.prod, self.shapes))
        self.max_steps = max(1, min(MAX_STEPS, MAX_ENTRIES // entries, MAX_ENTRIES_OF_ALL // (entries * num_members)))
        self._memory = [_memory(each, own, self.max_steps) for each, own in zip(examples, self._own, strict=True)]

    def of_member(self, member: int) -> list[Tensor]:
        """Return the memory ``[R, ...]`` of what a member is given, of two dimensions or more."""
        return [each[member] if own else each for each, own in zip(self._memory, self._own, strict=True)]

    def write(self, given: Sequence[StepArguments]) -> None:
        """Let the first steps be given this."""
        for memory, own, *rows in zip(self._memory, self._own, *map(self._tensors, given), strict=True):
            if own:
                memory[:, : len(rows)] = torch.stack(rows, 1).view(len(memory), len(rows), *memory.shape[2:])
            else:
                memory[: len(rows)] = torch.stack(rows).view(len(rows), *memory.shape[1:])

    def _tensors(self, given: StepArguments) -> list[Tensor]:
        return [*given.noise] if self._same_rows else [*given.noise, *tensors_of(given.batch)]


def _are_own(batch: StepBatch) -> list[bool]:
    """Tell of each tensor of a batch whether members have their own, along its first dimension."""
    pairs = zip(batch.data, batch.dims, strict=True)
    own = [dim == 0 for each, dim in pairs for leaf in pytree.tree_leaves(each) if isinstance(leaf, Tensor)]
    return own if batch.row_weights is None else [*own, True]


def _memory(example: Tensor, own: bool, max_steps: int) -> Tensor:
    """Return memory ``[R, ...]`` or ``[C, R, ...]``, filled with the example."""
    places = int(own)
    rows = example.detach().unsqueeze(places).repeat(*(1,) * places, max_steps, *(1,) * (example.ndim - places))
    return rows if rows.ndim > places + 1 else rows.unsqueeze(-1)


def member_gradient(
    run: Run, first: StepArguments, same_rows: bool, inputs: StepInputs
) -> tuple[GradientFunction, list[tuple[object, ...]] | None] | None:
    """Return the gradient of one member's objective in a chunk of steps, and the data of each member; None if all have the same.

    Its data are the memory of what steps are given, the member's constants, and the rows where these are always the same. None
    where members depend on each other. Arguments are those of :class:`StepInputs`.
    """
    objective = run.objective
    if not isinstance(objective, MemberObjective):
        return None
    # a loop over terms would be written out
    function = objective.alone if objective.num_terms == 1 else objective.function
    scalars = run.table[0, run.num_own :].unbind()
    leaves, spec = pytree.tree_flatten(
        inputs_of_member(ObjectiveInputs(scalars, run.constants, first.noise, first.batch), 0)
    )
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def single(params: Tensor, place: Tensor, scalars: State, *data: list[Tensor]) -> tuple[Tensor, Tensor]:
        memory, constants, rows = data
        given = [each.index_select(0, place).view(shape) for each, shape in zip(memory, inputs.shapes, strict=True)]
        values = dict(zip(places, [*scalars, *constants, *given, *rows], strict=True))
        own = pytree.tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        gradient, value = grad_and_value(function)(params, own)
        return value, gradient

    def data_of(member: int) -> tuple[object, ...]:
        own = inputs_of_member(ObjectiveInputs((), run.constants, (), first.batch), member)
        return inputs.of_member(member), list(own.constants), tensors_of(own.batch) if same_rows else []

    is_same = not (run.constants or inputs.has_own or (same_rows and any(_are_own(first.batch))))
    of_each = None if is_same else [data_of(member) for member in range(len(run.start))]
    batched, kind = vmap(single, in_dims=(0, 0, 0, None, None, None)), (spec, len(first.noise), same_rows)
    found = GradientFunction(single, batched, batched, data_of(0), lambda what, make: run.shared((what, kind), make))
    return found, of_each
