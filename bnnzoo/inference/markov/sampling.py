"""From a sampler's settings to a posterior: starting points, chains in this process or on an executor, and their statistics."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.executors import run_on
from bnnzoo.core.method import FitContext, Method, Progress, Silent, is_method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.verdict.rejections import why_rejected
from bnnzoo.engine import pytree
from bnnzoo.engine.reports import EngineReport, joined_reports
from bnnzoo.inference.config import config_of
from bnnzoo.inference.markov.chain_settings import (
    ChainSettings,
    goes_on,
    refuse_uneven_superchains,
    refuse_untuned,
    superchains_of,
)
from bnnzoo.inference.markov.checkpoint import Checkpoint, fingerprint_of
from bnnzoo.inference.markov.checkpoint_folder import Fingerprint, open_store
from bnnzoo.inference.markov.continuation import continued_seed, refuse_other_tuning, tuning_to_go_on
from bnnzoo.inference.markov.first_metric import metric_of_start, rows_of
from bnnzoo.inference.markov.hamiltonian.kernel import Metric
from bnnzoo.inference.markov.protocols import Loop, Sampler, Scaled, SeparateChains
from bnnzoo.inference.starts import Start, fitted_start, starting_points

__all__ = ["sample_chains", "sample_together"]

KINDS = {"n_steps": torch.int64, "tree_depth": torch.int64, "diverging": torch.bool}


@dataclass(frozen=True)
class ChainDraws:
    """Draws of some chains, as arrays that are sent between processes."""

    theta: NDArray[np.floating]
    stats: Mapping[str, NDArray[np.float64]]
    num_gradients: int
    num_rejected: int
    complete: bool
    tuning: Mapping[str, NDArray[np.floating]]
    engine: EngineReport


@dataclass(frozen=True)
class Task:
    """Everything that a batch of chains needs besides the density it runs on."""

    sampler: Sampler
    num_warmup: int
    num_draws: int
    theta: Tensor
    seed: int
    first_chain: int
    checkpoint: tuple[Path, Fingerprint] | None
    tuning: Mapping[str, Tensor] | None = None
    metric: Metric | None = None

    def of_chains(self, chains: range) -> "Task":
        """Return the task of some consecutive chains."""
        rows = slice(chains.start, chains.stop)
        tuning = None if self.tuning is None else {name: value[rows] for name, value in self.tuning.items()}
        metric = None if self.metric is None else rows_of(self.metric, rows)
        return replace(self, theta=self.theta[rows], first_chain=chains.start, tuning=tuning, metric=metric)


def sample_chains(
    settings: ChainSettings,
    sampler: Sampler,
    density: LogDensity,
    context: FitContext,
    *,
    starts: Callable[[], Tensor] | None = None,
    method: object = None,
) -> Draws:
    """Run chains of ``sampler`` with the settings of a method and return their draws ``[C, S, P]``.

    Parameters
    ----------
    settings, sampler, density, context
        What to run, and how.
    starts : callable, optional
        Finds the starting points ``[C, P]``. Default: those that ``settings.init`` asks for.
    method : Method, optional
        Whose fit a checkpoint belongs to. Default: ``settings``.

    Raises
    ------
    ValueError
        If the settings contradict each other, or the checkpoint belongs to another fit.
    OSError
        If the checkpoint cannot be written.
    """
    refuse_untuned(settings)
    refuse_uneven_superchains(settings)
    checkpoint = None
    if context.checkpoint is not None:
        if context.executor is None:  # before anything expensive runs; workers may see another file system
            open_store(context.checkpoint)
        checkpoint = (context.checkpoint, fingerprint_of(config_of(method or settings), density, context.seed))
    theta, metric = _started(settings, density, context, starts)
    seed, tuning = context.seed, None
    if goes_on(settings):
        seed, tuning = continued_seed(seed, theta), tuning_to_go_on(settings, theta)
    task = Task(sampler, settings.num_warmup, settings.num_draws, theta, seed, 0, checkpoint, tuning, metric)
    groups = sampler.groups(settings.num_chains, spread=context.executor is not None)
    tasks = [task.of_chains(group) for group in groups]
    if context.executor is None:
        result = _run_here(tasks, density, context.progress)
    else:
        what = f"{settings.num_chains} chains"
        result = _joined(run_on(context.executor, _run_in_worker, tasks, density, what))
    return _posterior_of(result, density)


def sample_together(
    settings: ChainSettings, begin: Callable[[Tensor], SeparateChains], fits: Sequence[tuple[LogDensity, FitContext]]
) -> list[Draws]:
    """Run the chains of several fits of one kind side by side and return what :func:`sample_chains` does of each.

    Parameters
    ----------
    settings : ChainSettings
    begin : callable
        Starts the chains of all fits at ``theta[F * C, P]``.
    fits : sequence of (LogDensity, FitContext)

    Raises
    ------
    ValueError
        If the settings contradict each other.
    OneByOneError
        If they cannot run side by side.
    """
    refuse_untuned(settings)
    refuse_uneven_superchains(settings)
    num = settings.num_chains
    starts = [_started(settings, density, context) for density, context in fits]
    loop = begin(torch.cat([theta for theta, _ in starts]))
    metrics = [found for _, found in starts if found is not None]
    if metrics and isinstance(loop, Scaled):
        loop.begin_with(pytree.tree_map(lambda *values: torch.cat(values), *metrics))
    while int(loop.counts.min()) < settings.num_warmup + settings.num_draws:
        loop.advance()
    chains = [slice(first, first + num) for first in range(0, num * len(fits), num)]
    return [
        _posterior_of(_drawn(loop, own, settings.num_draws, *loop.counted(own)), density)
        for own, (density, _) in zip(chains, fits, strict=True)
    ]


def _started(
    settings: ChainSettings, density: LogDensity, context: FitContext, starts: Callable[[], Tensor] | None = None
) -> tuple[Tensor, Metric | None]:
    """Return starting points ``[C, P]``, and mass matrices ``[C, ...]`` if what finds the points finds these, too."""
    metric: Metric | None = None
    if starts is not None:
        theta = starts()
    else:
        start: Start = settings.init
        if is_method(start):
            start = fitted_start(cast(Method, start), settings.num_chains, density, context)
        theta = starting_points(start, settings.num_chains, density, context, traced=True)
        own_units = settings.step_size is not None or settings.num_warmup == 0
        metric = None if own_units else metric_of_start(start, settings.num_chains)
    if (number := superchains_of(settings)) is None or goes_on(settings):
        return theta, metric
    width = settings.num_chains // number
    first = torch.arange(settings.num_chains, device=theta.device) // width * width
    return theta[first], None if metric is None else rows_of(metric, first)


def _posterior_of(result: ChainDraws, density: LogDensity) -> Draws:
    draws = torch.from_numpy(result.theta).to(density.device)
    info = FitInfo(
        sampling="mcmc",
        num_gradients=result.num_gradients,
        complete=result.complete,
        num_rejected=result.num_rejected,
        rejected_at=why_rejected(density, draws, result.num_rejected),
        tuning={name: torch.from_numpy(value).to(density.device) for name, value in result.tuning.items()},
        engine=result.engine,
        sample_stats={key: torch.from_numpy(value).to(KINDS.get(key)) for key, value in result.stats.items()},
    )
    return Draws(density, info, draws)


def _run_here(tasks: list[Task], density: LogDensity, progress: Progress) -> ChainDraws:
    """Run groups one after the other; if interrupted, return the finished ones, or else the draws of the first."""
    parts: list[ChainDraws] = []
    for task in tasks:
        try:
            part = _run(task, density, progress)
        except KeyboardInterrupt:
            if not parts:
                raise
            return replace(_joined(parts), complete=False)
        if not part.complete:
            return replace(_joined(parts), complete=False) if parts else part
        parts.append(part)
    return _joined(parts)


def _run(task: Task, density: LogDensity, progress: Progress) -> ChainDraws:
    """Run chains in this process, all in one batch; if interrupted, return the draws that every chain has.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before every chain has a draw.
    """
    progress.start("Compiling", 1)
    loop = task.sampler.begin(density, task.theta, task.seed, task.first_chain)
    if task.tuning is not None:
        refuse_other_tuning(task.tuning, loop.tuned)
        loop.adopt(task.tuning)
    if task.metric is not None and isinstance(loop, Scaled):
        loop.begin_with(task.metric)
    first, total, complete = task.first_chain, task.num_warmup + task.num_draws, True
    checkpoint = None if task.checkpoint is None else Checkpoint(*task.checkpoint, first, loop, task.num_warmup)
    with checkpoint or nullcontext():
        show = _Stages(progress, loop, task)
        try:
            while int(loop.counts.min()) < total:
                loop.advance()
                show()
                if checkpoint:
                    checkpoint.save_if_due()
        except KeyboardInterrupt:  # possibly in the middle of a step: the checkpoint ends with its last block
            complete = False
        else:
            if checkpoint:
                checkpoint.save()
    kept = min(int(loop.counts.min()) - task.num_warmup, task.num_draws)
    if kept < 1:
        raise KeyboardInterrupt("Interrupted during warm-up, before every chain had a draw.")
    return _drawn(loop, slice(None), kept, loop.num_gradients, loop.num_rejected, complete)


def _drawn(
    loop: Loop, chains: slice, kept: int, num_gradients: int, num_rejected: int, complete: bool = True
) -> ChainDraws:
    """Return what some chains have drawn."""
    stats = loop.stats[chains, :kept].numpy()
    return ChainDraws(
        theta=loop.draws[chains, :kept].cpu().numpy(),
        stats={name: stats[..., i] for i, name in enumerate(loop.stats_names)},
        num_gradients=num_gradients,
        num_rejected=num_rejected,
        complete=complete,
        tuning={name: value[chains].cpu().numpy() for name, value in loop.tuned.items()},
        engine=loop.log.report(),
    )


class _Stages:
    """Shows the progress of chains: those of the slowest, during warm-up and then while draws are kept."""

    def __init__(self, progress: Progress, loop: Loop, task: Task) -> None:
        self._progress, self._loop, self._num_warmup, self._num_draws = progress, loop, task.num_warmup, task.num_draws
        self._warm = int(loop.counts.min()) < task.num_warmup
        self._start()

    def __call__(self) -> None:
        """Show how far the chains are, if anybody looks: numbers of chains that move together cost as much as a short draw."""
        if isinstance(self._progress, Silent):
            self._progress.update(0)
            return
        count = int(self._loop.counts.min())
        if self._warm and count >= self._num_warmup:
            self._progress.update(self._num_warmup, **self._loop.progress_fields())
            self._warm = False
            self._start()
        if not self._warm:
            count -= self._num_warmup
        total = self._num_warmup if self._warm else self._num_draws
        self._progress.update(min(count, total), **self._loop.progress_fields())

    def _start(self) -> None:
        chains = f"{self._loop.num_chains} chain{'s' if self._loop.num_chains > 1 else ''}"
        if self._warm:
            self._progress.start(f"Warm-up, {chains}", self._num_warmup)
        else:
            self._progress.start(f"Sampling, {chains}", self._num_draws)


def _joined(parts: list[ChainDraws]) -> ChainDraws:
    if len(parts) == 1:  # no second copy of all draws
        return parts[0]
    kept = min(part.theta.shape[1] for part in parts)
    names = parts[0].stats
    return ChainDraws(
        theta=np.concatenate([part.theta[:, :kept] for part in parts]),
        stats={name: np.concatenate([part.stats[name][:, :kept] for part in parts]) for name in names},
        num_gradients=sum(part.num_gradients for part in parts),
        num_rejected=sum(part.num_rejected for part in parts),
        complete=all(part.complete for part in parts),
        tuning={name: np.concatenate([part.tuning[name] for part in parts]) for name in parts[0].tuning},
        engine=joined_reports([part.engine for part in parts]),
    )


def _run_in_worker(task: Task, density: LogDensity) -> ChainDraws:
    return _run(task, density, Silent())
