"""A step of training, and the loop over one member's steps for native code, whose inputs lie in memory one by one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.engine.chunks import Inner
from bnnzoo.inference.optimise.optimisers import Optimiser, State
from bnnzoo.inference.optimise.training_run import STEPS_PER_LOOK

__all__ = ["Layout", "Member", "TrainingCounters", "TrainingPlan", "member_loop", "moved", "retreated"]


def moved(
    optimiser: Optimiser,
    params: Tensor,
    state: State,
    numbers: tuple[Tensor, ...],
    noise: State,
    value: Tensor,
    gradient: Tensor,
) -> tuple[Tensor, State, Tensor]:
    r"""Return parameters ``[C, Q]``, state of the optimiser and values ``[C]`` after a step of members, NaN where it is refused.

    .. math:: \phi_{t+1} = \phi_t + \Delta(\nabla f(\phi_t; \text{batch}_t, \epsilon_t), \eta_t)

    A member whose value or gradient is not finite stays where it is.
    """
    usable = gradient.isfinite().all(1, keepdim=True) & value.isfinite()[:, None]
    move, state = optimiser.move(torch.where(usable, gradient, 0.0), state, numbers, noise)
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


class TrainingCounters(NamedTuple):
    """Numbers ``[]`` of steps: taken so far, taken in this chunk, and left in it."""

    taken: Tensor
    place: Tensor
    left: Tensor


class Member(NamedTuple):
    """Everything about one member that changes.

    Attributes
    ----------
    params : Tensor [Q]
    moments : tuple of Tensor [Q]
        State of the optimiser.
    good : Tensor [Q]
        The latest iterate known to be good.
    last : Tensor []
        The objective before the last step; NaN if that was refused.
    values : Tensor [R, 1]
        The objective before each step of the chunk.
    iterates : Tensor [R, Q]
        Those after each step, or a single row where nobody looks at them.
    counters : TrainingCounters
        Written last: the rows above are written where these count.
    """

    params: Tensor
    moments: State
    good: Tensor
    last: Tensor
    values: Tensor
    iterates: Tensor
    counters: TrainingCounters


class TrainingPlan(NamedTuple):
    """What does not change during a chunk.

    Attributes
    ----------
    table : Tensor [R, K]
        Numbers of each step.
    given : sequence of Tensor [R, ...]
        What each step is given: random numbers, and the rows of its batch unless they are always the same.
    constants : sequence of Tensor
        Of this member.
    data : sequence of Tensor
        The rows, if they are always the same.
    inner : sequence of Tensor
        Constants of the gradient's graph.
    """

    table: Tensor
    given: Sequence[Tensor]
    constants: Sequence[Tensor]
    data: Sequence[Tensor]
    inner: Sequence[Tensor]


class Layout(NamedTuple):
    """How many numbers of the table are the optimiser's, how many of a step's tensors are noise, and the shapes of all."""

    num_own: int
    num_noise: int
    shapes: tuple[tuple[int, ...], ...]


def member_loop(
    optimiser: Optimiser, inner: Inner, layout: Layout
) -> tuple[Callable[..., Tensor], Callable[[Member, TrainingPlan], Member]]:
    """Return ``going`` and ``body`` of the loop over the steps of one member, on a :class:`Member` and a :class:`TrainingPlan`.

    Parameters
    ----------
    optimiser : Optimiser
    inner : Inner
        ``(params[Q], scalars, constants, noise, rows) -> (objective [], gradient [Q])``.
    layout : Layout
    """

    def going(member: Member, plan: TrainingPlan) -> Tensor:
        return member.counters.left > 0

    def step(member: Member, plan: TrainingPlan) -> Member:
        place = member.counters.place.view(1)
        numbers = plan.table.index_select(0, place).view(-1).unbind()
        pairs = zip(plan.given, layout.shapes, strict=True)
        given = [each.index_select(0, place).view(shape) for each, shape in pairs]
        noise, rows = given[: layout.num_noise], [*given[layout.num_noise :], *plan.data]
        scalars = numbers[layout.num_own :]
        value, gradient = inner.graph(*plan.inner, member.params, *scalars, *plan.constants, *noise, *rows)
        one = (each[None] for each in (value, gradient))
        params, moments, values = moved(
            optimiser,
            member.params[None],
            tuple(each[None] for each in member.moments),
            numbers[: layout.num_own],
            tuple(each[None] for each in noise),
            *one,
        )
        return _stepped(member, params, tuple(each[0] for each in moments), values)

    return going, step


def _stepped(member: Member, params: Tensor, moments: State, value: Tensor) -> Member:
    """Return a member after a step to ``params[1, Q]``, with the step's row written; now and then it retreats if it is stuck."""
    counters = member.counters
    looks = (counters.taken + 1) % STEPS_PER_LOOK == 0
    found = retreated(member.params[None], params, member.good[None], member.last[None], value)
    params, good = torch.where(looks, found[0], params), torch.where(looks, found[1], member.good[None])
    row, only_row = counters.place.view(1), counters.place.clamp(max=len(member.iterates) - 1).view(1)
    return Member(
        params=params[0],
        moments=moments,
        good=good[0],
        last=value[0],
        values=member.values.index_put((row,), value[:, None]),
        iterates=member.iterates.index_put((only_row,), params),
        counters=TrainingCounters(counters.taken + 1, counters.place + 1, counters.left - 1),
    )
