"""Iterative algorithms as programs: pure functions of one copy's state, with a gradient in the middle of each step."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx import GraphModule

from bnnzoo.engine import pytree
from bnnzoo.engine.loops import while_loop
from bnnzoo.engine.registers import Stacks

__all__ = ["Copy", "GradientFunction", "Program", "Stage", "batched_stage", "batched_step", "native_loop", "where"]


class Stage(NamedTuple):
    """What a program does between steps, written for one copy.

    Attributes
    ----------
    applies : callable
        ``(moving, resting) -> bool []``: whether the stage is due.
    update : callable
        ``(moving, resting) -> (moving, resting)``, or ``(moving, resting, row)`` if rows are kept; used only where it is due.
    keeps : callable, optional
        ``(moving, resting) -> bool []``: whether the row, a tuple of tensors, is a result of the program.
    """

    applies: Callable[[Any, Any], Tensor]
    update: Callable[[Any, Any], tuple[Any, ...]]
    keeps: Callable[[Any, Any], Tensor] | None = None


@runtime_checkable
class Program(Protocol):
    """An iterative algorithm for one copy: a chain, a member or a data set.

    The state has two parts, pytrees of tensors: ``moving`` changes at every step, ``resting`` in stages. A cycle is ``begin``
    where it applies, steps as long as ``steps_left``, and then the ``stages``, each of which applies only where the one before it
    did, the first where no steps are left; the last one may keep a row. A copy that is not ``going`` waits for the caller. Random
    numbers are functions of keys and counters in the state. Programs of equal ``key`` are the same algorithm.
    """

    @property
    def key(self) -> Hashable: ...
    @property
    def begin(self) -> Stage: ...
    @property
    def stages(self) -> tuple[Stage, ...]: ...
    def going(self, moving: Any, resting: Any) -> Tensor:
        """Return whether the copy goes on by itself ``[]``, or of many copies whether each does ``[C]``."""
        ...

    def steps_left(self, moving: Any) -> Tensor:
        """Return how many steps will be taken at least before the next stage is due, ``[]`` or ``[C]``: none if it is due now."""
        ...

    def held(self, resting: Any) -> Any:
        """Return the part of ``resting`` that a step uses."""
        ...

    def point(self, moving: Any, held: Any) -> tuple[Tensor, tuple[Any, ...], Any]:
        """Return the point ``theta[P]`` at which a step needs the gradient, its other inputs, and what else is computed by then.

        The inputs are trees of tensors of this copy, such as numbers of rows.
        """
        ...

    def step(self, moving: Any, held: Any, ahead: Any, value: Tensor, gradient: Tensor) -> Any:
        """Return ``moving`` after a step, from what ``point`` returned and the value ``[]`` and gradient ``[P]`` there."""
        ...


class GradientFunction(NamedTuple):
    """A function and its gradient, ``(theta, *inputs, *data) -> (value, gradient)``, at one point and at many.

    The ``inputs`` are what :meth:`Program.point` returns besides theta: of one copy, or of all of them, ``[C, ...]`` each.

    Attributes
    ----------
    single, batched : callable
        At ``theta[P]`` and at ``theta[C, P]``.
    looped : callable
        At ``theta[C, P]`` by a loop in Python, for functions that cannot be batched.
    data : tuple
        Pytrees of tensors and constants.
    shared : callable
        ``(key, make) -> made``: of many fits of one kind, the first makes what all of them share.
    """

    single: Callable[..., tuple[Tensor, Tensor]]
    batched: Callable[..., tuple[Tensor, Tensor]]
    looped: Callable[..., tuple[Tensor, Tensor]]
    data: tuple[Any, ...]
    shared: Callable[[Hashable, Callable[[], Any]], Any] = lambda key, make: make()


class Copy(NamedTuple):
    """One copy in native code: its state, the steps it may still take before it returns, and the rows it has kept.

    The buffers of ``rows`` have one place more than there are rows to keep; what is not kept is written there.
    """

    moving: Any
    resting: Any
    budget: Tensor
    num_rows: Tensor
    rows: tuple[Tensor, ...]


def where(condition: Tensor, yes: Any, no: Any) -> Any:
    """Return ``yes`` or ``no``, trees of one copy, for a condition ``[]``; leaves that are the same object are left alone."""
    return pytree.tree_map(lambda a, b: a if a is b else torch.where(condition, a, b), yes, no)


def native_loop(
    program: Program, graph: GraphModule
) -> tuple[Callable[[Copy, Any], Tensor], Callable[[Copy, Any], Copy]]:
    """Return ``going`` and ``body`` of the loop over the cycles of one copy, on a :class:`Copy` and the data.

    Parameters
    ----------
    program : Program
    graph : GraphModule
        The gradient function, ``(*constants, theta, *inputs, *data) -> (value, gradient)``, where ``(constants, data)`` are the
        data, all of them leaves.
    """

    def step(state: tuple[Any, Tensor], given: Any) -> tuple[Any, Tensor]:
        (moving, budget), (held, (constants, data)) = state, given
        theta, inputs, ahead = program.point(moving, held)
        value, gradient = graph(*constants, theta, *pytree.tree_leaves(inputs), *data)
        return program.step(moving, held, ahead, value, gradient), budget - 1

    def is_moving(state: tuple[Any, Tensor], given: Any) -> Tensor:
        return (program.steps_left(state[0]) > 0) & (state[1] > 0)

    def going(copy: Copy, data: Any) -> Tensor:
        has_room = copy.num_rows < len(copy.rows[0]) - 1 if copy.rows else True
        return program.going(copy.moving, copy.resting) & (copy.budget > 0) & has_room

    def body(copy: Copy, data: Any) -> Copy:
        copy = _after(program.begin, copy)
        given = program.held(copy.resting), data
        moving, budget = while_loop(is_moving, step, (copy.moving, copy.budget), given)
        copy = copy._replace(moving=moving, budget=budget)
        for stage in program.stages:
            copy = _after(stage, copy)
        return copy

    return going, body


def _after(stage: Stage, copy: Copy) -> Copy:
    state = copy.moving, copy.resting
    applies, (moving, resting, *row) = stage.applies(*state), stage.update(*state)
    if stage.keeps is not None:
        kept = applies & stage.keeps(*state)
        place = torch.where(kept, copy.num_rows, len(copy.rows[0]) - 1).view(1)
        rows = [buffer.index_put((place,), value[None]) for buffer, value in zip(copy.rows, row[0], strict=True)]
        copy = copy._replace(num_rows=copy.num_rows + kept, rows=tuple(rows))
    moving, resting = where(applies, (moving, resting), state)
    return copy._replace(moving=moving, resting=resting)


def batched_step(
    program: Program, value_and_grad: Callable[..., tuple[Tensor, Tensor]], moving: Stacks, resting: Stacks
) -> Callable[..., tuple[list[Tensor], Tensor]]:
    """Return one step of all copies, on packed states, and the fewest steps that are left to any of them."""

    def step(moved: list[Tensor], rested: list[Tensor], *data: Any) -> tuple[list[Tensor], Tensor]:
        now, rest = moving.tree(moved), resting.tree(rested)
        held = vmap(program.held)(rest)
        theta, inputs, ahead = vmap(program.point)(now, held)
        value, gradient = value_and_grad(theta, *inputs, *data)
        now = vmap(program.step)(now, held, ahead, value, gradient)
        return moving.packed(now), program.steps_left(now).min()

    return step


def batched_stage(
    program: Program, stage: Stage, following: Stage | None, moving: Stacks, resting: Stacks
) -> Callable[..., tuple[Any, ...]]:
    """Return one stage of all copies on packed states, applied where it is due.

    Its results are the states, the row and where it is kept, and whether the following stage is due in any copy; for the last
    stage, whether any copy that was going now waits.
    """

    def update(moved: list[Tensor], rested: list[Tensor]) -> tuple[Any, ...]:
        state = moving.tree(moved), resting.tree(rested)
        applies = vmap(stage.applies)(*state)
        now, rest, *row = vmap(stage.update)(*state)
        kept = () if stage.keeps is None else (*row, applies & vmap(stage.keeps)(*state))
        moved = moving.chosen(applies, moving.packed(now), moved)
        rested = resting.chosen(applies, resting.packed(rest), rested)
        after = moving.tree(moved), resting.tree(rested)
        if following is not None:
            return moved, rested, kept, vmap(following.applies)(*after).any()
        waits = program.going(*state) & ~program.going(*after)
        return moved, rested, kept, waits.any()

    return update
