"""The one training loop: any objective, optimiser, schedule and batches, for all members at once."""

import warnings
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.core.settings import check_settings
from bnnzoo.engine.choose import NATIVE_PAYS_FROM
from bnnzoo.engine.cpp.toolchain import NoCompiler
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.lowered import ENGINES, Lowered
from bnnzoo.engine.reports import EngineLog, ran_as
from bnnzoo.engine.torch_private import LoweringWarning
from bnnzoo.inference.optimise.batches import Batches, RowBatches, StepBatch
from bnnzoo.inference.optimise.native_training import native_members, trained_natively
from bnnzoo.inference.optimise.objectives import MemberObjective, Objective, ObjectiveInputs
from bnnzoo.inference.optimise.observers import Observer, StepProgress
from bnnzoo.inference.optimise.optimisers import Optimiser, State
from bnnzoo.inference.optimise.schedules import Schedule
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.optimise.training_program import moved, retreated
from bnnzoo.inference.optimise.training_run import STEPS_PER_LOOK, NoiseSource, Run, Steps, Trained, tensors_of

__all__ = ["train"]


def train(
    objective: Objective,
    optimiser: Optimiser,
    schedule: Schedule,
    batches: Batches,
    start: Tensor,
    *,
    num_steps: int,
    density: LogDensity,
    context: FitContext,
    members: range | None = None,
    scalars: Tensor | None = None,
    constants: tuple[Tensor, ...] = (),
    noise: NoiseSource = lambda _: (),
    observe: Observer | None = None,
    name: str = "loss",
) -> Trained:
    """Maximise an objective from every row of ``start[C, Q]``; one step of all rows is one lowered graph.

    A member whose objective or gradient is not finite stays where it is for that step. If this does not pass, it goes back half
    the way to where it was before, again and again. Interrupted from the keyboard, the run returns what it has.

    Parameters
    ----------
    objective : Objective
        What is maximised.
    optimiser : Optimiser
        The update; see :func:`bnnzoo.inference.optimise.training_program.moved`.
    schedule : Schedule
        Factors of the optimiser's learning rate.
    batches : Batches
        Which rows each step sees.
    start : Tensor [C, Q]
        One row for each member.
    num_steps : int
        Number of steps, fewer if ``observe`` ends the run.
    density, context
        As in ``Method.run``.
    members : range, optional
        Numbers of the rows among all members of the fit, on which their random streams depend; default: all of them.
    scalars : Tensor [num_steps, K], optional
        Numbers passed to the objective step by step.
    constants : tuple of Tensor [C, ...]
        Passed to the objective at every step, such as the anchors of an anchored ensemble.
    noise : callable
        Draws the random numbers of a step; see :data:`NoiseSource`.
    observe : Observer, optional
        Sees every iterate and may end the run; see :mod:`bnnzoo.inference.optimise.observers`.
    name : str
        What the progress bar calls the objective.

    Returns
    -------
    Trained

    Raises
    ------
    ValueError
        If a setting is out of range, or mini-batches are asked for of a model without rows.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.inference.optimise.batches import AllRows
    >>> from bnnzoo.inference.optimise.objectives import log_joint_objective
    >>> from bnnzoo.inference.optimise.optimisers import SGD
    >>> from bnnzoo.inference.optimise.schedules import Cosine
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> density = build_density(target.model, *target.data)
    >>> found = train(
    ...     log_joint_objective(density), SGD(1e-3), Cosine(), AllRows(), torch.zeros(2, 3),
    ...     num_steps=500, density=density, context=FitContext(),
    ... )
    >>> bool(torch.allclose(found.params, target.mean["w"].expand(2, 3), atol=1e-3))
    True
    """
    for part in (optimiser, schedule, batches):
        _check_with_parts(part)
    streams = MemberStreams(context.seed, range(len(start)) if members is None else members)
    source = batches.stream(density, streams)
    own = optimiser.scalars(schedule.factors(num_steps))
    columns = own if scalars is None else torch.cat([own, scalars.to(own)], 1)
    table, num_own = columns.to(start), own.shape[1]
    key = objective.key if isinstance(objective, MemberObjective) else None

    def shared[T](what: Hashable, make: Callable[[], T]) -> T:
        return make() if key is None else density.shared((what, key), make)

    run = Run(objective, optimiser, table, num_own, constants, start, observe, context.progress, name, shared)
    steps = Steps(source, noise, streams.shared)
    context.progress.start("Compiling", 1)
    native, log = None, EngineLog()
    pays = context.engine == "auto" and over_all_fits(num_steps) >= NATIVE_PAYS_FROM
    if (pays or context.engine == "native") and not isinstance(density, StreamedDensity):
        same_rows = isinstance(batches, RowBatches) and batches.have_same_rows(density.num_data)
        native = native_members(run, steps.first, same_rows, log, is_asked=context.engine == "native")
    if native is None:
        reasons = log.report().reasons
        if any(NoCompiler.__name__ in reason for reason in reasons):
            warnings.warn(
                f"Training runs as traced graphs, several times slower: {'; '.join(reasons)}.",
                LoweringWarning,
                stacklevel=2,
            )
        one_step = shared(("step", optimiser, num_own), lambda: _lowered_step(objective, optimiser, num_own))
        return _trained_in_batch(run, one_step, steps, reasons)
    ran_as("native")
    return trained_natively(native, run, steps)


def _trained_in_batch(run: Run, one_step: Lowered, steps: Steps, reasons: tuple[str, ...]) -> Trained:
    """Train all members in one batch: one call from Python a step; ``reasons`` say why not in native code."""
    constants, observe = run.constants, run.observe
    show: StepProgress | None = None
    params, state, good = run.start, run.optimiser.start(run.start), run.start
    values: list[Tensor] = []
    step: Callable[..., Any] | None = None
    batch: StepBatch | None = None
    tensors: list[Tensor] = []
    try:
        for taken, row in enumerate(run.table.unbind(0), start=1):
            last, (batch, drawn) = batch, next(steps)
            tensors = tensors if batch is last else tensors_of(batch)
            if step is None:
                arguments = (params, state, row, constants, drawn, batch)
                specialized = one_step.specialize(*arguments, num_calls=run.num_steps)
                ran_as(ENGINES[specialized.how], reasons)
                step = specialized.flat
                show = StepProgress(run.progress, "Optimising", run.num_steps, run.name)
            before = params
            with torch.no_grad():
                params, *moments, value = step(params, *state, row, *constants, *drawn, *tensors)
            state = tuple(moments)
            if taken % STEPS_PER_LOOK == 0:
                if bool(value.isnan().any()):
                    params, good = retreated(before, params, good, values[-1], value)
                else:
                    good = before
            ends = observe is not None and observe(taken, params, value)
            values.append(value)
            if ends:
                break
            if show is not None:
                show(taken, value)
    except KeyboardInterrupt:
        if not values:
            raise
        return Trained(params, state, torch.stack(values, 1), False, good)
    return Trained(params, state, torch.stack(values, 1), True, good)


def _check_with_parts(part: object) -> None:
    """Check a dataclass of settings, and those in its fields."""
    if is_dataclass(part):
        check_settings(part)
        for field in fields(part):
            _check_with_parts(getattr(part, field.name))


def _lowered_step(objective: Objective, optimiser: Optimiser, num_own: int) -> Lowered:
    """Return ``(params, state, row of the table, constants, noise, batch) -> (params, *state, value)``."""

    def stepping(value_and_grad: Callable[[Tensor, ObjectiveInputs], tuple[Tensor, Tensor]]) -> Callable[..., Any]:
        def step(
            params: Tensor, state: State, row: Tensor, constants: State, noise: State, batch: StepBatch
        ) -> tuple[Tensor, ...]:
            numbers = row.unbind()
            value, gradient = value_and_grad(params, ObjectiveInputs(numbers[num_own:], constants, noise, batch))
            params, state, value = moved(optimiser, params, state, numbers[:num_own], noise, value, gradient)
            return params, *state, value

        return step

    return Lowered(stepping(objective.value_and_grad), stepping(objective.looped_value_and_grad))
