"""Whether a run trains in native code, and the loop over its stretches."""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.utils import _pytree as pytree

from bnnzoo.inference.optimise.native_members import NativeMembers
from bnnzoo.inference.optimise.objectives import Inputs, MemberObjective, inputs_of_member
from bnnzoo.inference.optimise.observers import StepProgress
from bnnzoo.inference.optimise.runs import Given, Run, Trained
from bnnzoo.lowering.stretches import Inner, compiled_or_none, inner_graph

__all__ = ["member_gradient", "native_members", "trained_natively"]

MIN_STEPS = 500
"""Steps below which not even the gradient is traced to see whether native code would pay."""

NATIVE_PAYS_FROM = 2.0
"""Seconds that a run would take as a traced graph from which native code pays."""

MAX_WORK = 5e-3
"""Seconds of arithmetic in a step of one member up to which native code pays: larger steps share their work among cores."""

MAX_OPERATIONS = 300
"""Operations of a gradient from which on a compiler takes too long: a second for 60, a minute for 400."""


def native_members(run: Run, first: Given, same_rows: bool) -> NativeMembers | None:
    """Return members that train in native code, or None where that does not pay or cannot be done.

    That depends on the run and on no clock, so that it can be repeated.
    """
    if run.num_steps < MIN_STEPS or run.start.device.type != "cpu":
        return None
    inner = member_gradient(run, first)
    if inner is None or not _pays(run, inner):
        return None
    return compiled_or_none(inner, lambda found: NativeMembers(run, found, first, same_rows))


def member_gradient(run: Run, first: Given) -> Inner | None:
    """Return ``(params[Q], scalars, constants, noise, rows) -> (objective [], gradient [Q])`` of one member as a graph.

    None where members depend on each other, or where it cannot be traced.
    """
    objective = run.objective
    if not isinstance(objective, MemberObjective) or objective.num_terms > 1:
        return None
    scalars = run.table[0, run.num_own :].unbind()
    inputs = inputs_of_member(Inputs(scalars, run.constants, first.noise, first.batch), 0)
    leaves, spec = pytree.tree_flatten(inputs)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def value_and_grad(params: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        values = dict(zip(places, tensors, strict=True))
        own = pytree.tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        gradient, value = grad_and_value(objective.alone)(params, own)
        return value, gradient

    return inner_graph(value_and_grad, [run.start[0], *(leaves[i] for i in places)])


def trained_natively(members: NativeMembers, run: Run, given: Iterator[Given]) -> Trained:
    """Train in stretches; observers see every iterate after the stretch, and a run that they end goes back to where they did."""
    show = StepProgress(run.progress, "Optimising", run.num_steps, run.name)
    values: list[Tensor] = []
    seen, ends, complete = 0, False, True
    try:
        while seen < run.num_steps and not ends:
            table = run.table[seen : seen + members.budget]
            value, iterates = members.advance(table, list(islice(given, len(table))))
            values.append(value)
            for place, column in enumerate(value.unbind(1)):
                ends = run.observe is not None and bool(run.observe(seen + 1, iterates[:, place].clone(), column))
                seen += 1
                if ends:
                    break
                show(seen, column)
    except KeyboardInterrupt:
        if not seen:
            raise
        complete = False
    members.go_back(seen)
    return members.ended(torch.cat(values, 1)[:, :seen], complete)


def _pays(run: Run, inner: Inner) -> bool:
    seconds = run.num_steps * (inner.overhead + len(run.start) * inner.work)
    num_operations = sum(node.op == "call_function" for node in inner.graph.graph.nodes)
    return seconds >= NATIVE_PAYS_FROM and inner.work <= MAX_WORK and num_operations <= MAX_OPERATIONS
