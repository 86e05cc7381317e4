"""The one training loop: any objective, optimiser, schedule and batches, for all members at once."""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.core.settings import check_settings
from bnnzoo.engine.choose import NATIVE_PAYS_FROM
from bnnzoo.engine.fallbacks import lacks_compiler, warn_without_compiler
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.reports import EngineLog, ran_as
from bnnzoo.inference.optimise.batches import Batches, RowBatches
from bnnzoo.inference.optimise.objectives import MemberObjective, Objective
from bnnzoo.inference.optimise.observers import Observer, SeesChunks, StepProgress
from bnnzoo.inference.optimise.optimisers import Optimiser
from bnnzoo.inference.optimise.schedules import Schedule
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.optimise.training_engines import BatchedTraining, TrainingEngine, native_training
from bnnzoo.inference.optimise.training_run import NoiseSource, Run, Steps, Trained

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
        native = native_training(run, steps.first, same_rows, log, is_asked=context.engine == "native")
    if native is not None:
        ran_as("native")
        return _trained(native, run, steps)
    reasons = log.report().reasons
    if lacks_compiler(reasons):
        warn_without_compiler("Training runs", reasons)
    return _trained(BatchedTraining(run, steps.first, reasons), run, steps)


def _trained(members: TrainingEngine, run: Run, steps: Steps) -> Trained:
    """Train in chunks; observers see every iterate after the chunk, and a run that they end goes back to where they did."""
    show = StepProgress(run.progress, "Optimising", run.num_steps, run.name)
    sees = run.observe.see if members.keeps_iterates and isinstance(run.observe, SeesChunks) else None
    values: list[Tensor] = []
    seen, ends, complete = 0, False, True
    try:
        while seen < run.num_steps and not ends:
            table = run.table[seen : seen + members.budget]
            value = members.advance(table, steps.take(len(table)) if members.reads_steps else ())
            values.append(value)
            if run.observe is None or sees is not None:
                if sees is not None:
                    sees(seen + 1, members.iterates(len(table)))
                first, seen = seen + 1, seen + len(table)
                while show.due <= seen:
                    show(show.due, value[:, show.due - first])
                continue
            for params, column in zip(members.iterates(len(table)).unbind(1), value.unbind(1), strict=True):
                ends = bool(run.observe(seen + 1, params.clone() if members.keeps_iterates else params, column))
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


def _check_with_parts(part: object) -> None:
    """Check a dataclass of settings, and those in its fields."""
    if is_dataclass(part):
        check_settings(part)
        for field in fields(part):
            _check_with_parts(getattr(part, field.name))
