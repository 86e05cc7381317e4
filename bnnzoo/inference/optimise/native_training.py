"""Choice of native code for a training run, and the loop over its chunks."""

import torch
from torch import Tensor
from torch.func import grad_and_value

from bnnzoo.engine import pytree
from bnnzoo.engine.chunks import Inner, compiled_or_none, inner_graph, kinds_of
from bnnzoo.engine.reports import EngineLog
from bnnzoo.inference.optimise.native_members import NativeMembers
from bnnzoo.inference.optimise.objectives import MemberObjective, ObjectiveInputs, inputs_of_member
from bnnzoo.inference.optimise.observers import SeesChunks, StepProgress
from bnnzoo.inference.optimise.training_run import Run, StepArguments, Steps, Trained

__all__ = ["member_gradient", "native_members", "trained_natively"]

MAX_MEMBERS = 256
"""Members up to which training each on its own beats a batch, in which small ones share what operations cost to be called."""

MAX_FLOPS = 50_000_000
"""Multiplications and additions in a step of one member up to which native code pays, unless it is asked for: larger steps
share them among cores."""


def native_members(
    run: Run, first: StepArguments, same_rows: bool, log: EngineLog, *, is_asked: bool = False
) -> NativeMembers | None:
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
    first = pytree.tree_map_only(Tensor, Tensor.contiguous, first)  # once, and not for each member
    possible = run.start.device.type == "cpu" and (is_asked or len(run.start) <= MAX_MEMBERS)
    inner = member_gradient(run, first, log) if possible else None
    if inner is None or (inner.flops > MAX_FLOPS and not is_asked):
        return None
    return compiled_or_none(inner, lambda found: NativeMembers(run, found, first, same_rows, log=log), log)


def member_gradient(run: Run, first: StepArguments, log: EngineLog | None = None) -> Inner | None:
    """Return ``(params[Q], scalars, constants, noise, rows) -> (objective [], gradient [Q])`` of one member as a graph.

    None where members depend on each other, or where it cannot be traced: ``log`` takes down why.
    """
    objective = run.objective
    if not isinstance(objective, MemberObjective):
        return None
    function = (
        objective.alone if objective.num_terms == 1 else objective.function
    )  # a loop over terms would be written out
    scalars = run.table[0, run.num_own :].unbind()
    inputs = inputs_of_member(ObjectiveInputs(scalars, run.constants, first.noise, first.batch), 0)
    leaves, spec = pytree.tree_flatten(inputs)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def value_and_grad(params: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        values = dict(zip(places, tensors, strict=True))
        own = pytree.tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        gradient, value = grad_and_value(function)(params, own)
        return value, gradient

    tensors = [run.start[0], *(leaves[i] for i in places)]
    found: Inner | None = run.shared(
        ("gradient of a member", spec, kinds_of(tensors)),
        lambda: inner_graph(value_and_grad, tensors, counts_flops=True, log=log),
    )
    return found


def trained_natively(members: NativeMembers, run: Run, steps: Steps) -> Trained:
    """Train in chunks; observers see every iterate after the chunk, and a run that they end goes back to where they did."""
    show = StepProgress(run.progress, "Optimising", run.num_steps, run.name)
    values: list[Tensor] = []
    seen, ends, complete = 0, False, True
    try:
        while seen < run.num_steps and not ends:
            table = run.table[seen : seen + members.budget]
            value, iterates = members.advance(table, steps.take(len(table)) if members.reads_steps else ())
            values.append(value)
            if run.observe is None or isinstance(run.observe, SeesChunks):
                if run.observe is not None:
                    run.observe.see(seen + 1, iterates)
                first, seen = seen + 1, seen + len(table)
                while show.due <= seen:
                    show(show.due, value[:, show.due - first])
                continue
            for place, column in enumerate(value.unbind(1)):
                ends = bool(run.observe(seen + 1, iterates[:, place].clone(), column))
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
