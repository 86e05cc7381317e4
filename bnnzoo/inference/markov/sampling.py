"""From a method's settings to a posterior: starts, chains here or on an executor, and what ArviZ wants to know of them."""

from collections.abc import Mapping
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.core.method import FitContext, Method, Progress, Silent
from bnnzoo.core.posterior import Draws, FitInfo
from bnnzoo.inference.config import config_of
from bnnzoo.inference.markov.checkpoint import Checkpoint, Fingerprint, fingerprint_of
from bnnzoo.inference.markov.protocols import Loop, Sampler
from bnnzoo.inference.markov.settings import refuse_counts
from bnnzoo.inference.starts import Start, starting_points

__all__ = ["ChainSettings", "sample_chains"]


@dataclass(frozen=True)
class ChainSettings:
    """How many chains of what length, and where they start."""

    num_chains: int
    num_warmup: int
    num_draws: int
    init: Start


@dataclass(frozen=True)
class ChainDraws:
    """Draws of some chains, as arrays that travel between processes."""

    theta: NDArray[np.floating]
    stats: Mapping[str, NDArray[np.float64]]
    num_gradients: int
    complete: bool


@dataclass(frozen=True)
class Task:
    """All that chains need besides the density they run on."""

    sampler: Sampler
    settings: ChainSettings
    theta: Tensor
    seed: int
    first_chain: int
    checkpoint: tuple[Path, Fingerprint] | None

    def of_chains(self, chains: range) -> "Task":
        """Return the task of some of the chains, which follow each other."""
        theta = self.theta[chains.start : chains.stop]
        return Task(self.sampler, self.settings, theta, self.seed, chains.start, self.checkpoint)


def sample_chains(
    method: Method, sampler: Sampler, settings: ChainSettings, density: LogDensity, context: FitContext
) -> Draws:
    """Run chains of ``sampler`` and return their draws ``[C, S, P]``.

    Raises
    ------
    ValueError
        If settings cannot be, or a checkpoint is not of this fit.
    """
    name = type(method).__name__
    least = {"num_chains": 1, "num_draws": 1, "num_warmup": 0}
    refuse_counts(name, {key: (getattr(settings, key), value) for key, value in least.items()})
    sampler.refuse_impossible(name)
    checkpoint = None
    if context.checkpoint is not None:
        checkpoint = (context.checkpoint, fingerprint_of(config_of(method), density, context.seed))
    theta = starting_points(settings.init, settings.num_chains, density, context, traced=True)
    task = Task(sampler, settings, theta, context.seed, 0, checkpoint)
    groups = sampler.groups(settings.num_chains, spread=context.executor is not None)
    tasks = [task.of_chains(group) for group in groups]
    workers = context.executor
    result = _ship(workers, tasks, density) if workers is not None else _run_here(tasks, density, context.progress)
    info = FitInfo(
        sampling="mcmc",
        num_gradients=result.num_gradients,
        complete=result.complete,
        sample_stats={key: torch.from_numpy(value).to(KINDS.get(key)) for key, value in result.stats.items()},
    )
    return Draws(density, info, torch.from_numpy(result.theta).to(density.device))


KINDS = {"n_steps": torch.int64, "tree_depth": torch.int64, "diverging": torch.bool}


def _run_here(tasks: list[Task], density: LogDensity, progress: Progress) -> ChainDraws:
    """Run groups one after the other; interrupted, return those that are done, or what the first one has."""
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
    """Run chains in this process, all in one batch; interrupted, return the draws that every chain has.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before every chain has a draw.
    """
    loop = task.sampler.begin(density, task.theta, task.seed, task.first_chain)
    complete = _advance(loop, task, progress)
    kept = min(int(loop.counts.min()) - task.settings.num_warmup, task.settings.num_draws)
    if kept < 1:
        raise KeyboardInterrupt("Interrupted during warm-up, before every chain had a draw.")
    stats = loop.stats[:, :kept].numpy()
    return ChainDraws(
        theta=loop.draws[:, :kept].cpu().numpy(),
        stats={name: stats[..., i] for i, name in enumerate(loop.stats_names)},
        num_gradients=loop.num_leaps * loop.num_chains,
        complete=complete,
    )


def _advance(loop: Loop, task: Task, progress: Progress) -> bool:
    """Draw until every chain has all its draws; return False if interrupted from the keyboard."""
    warmup, total = task.settings.num_warmup, task.settings.num_warmup + task.settings.num_draws
    checkpoint = Checkpoint(*task.checkpoint, task.first_chain, loop, warmup) if task.checkpoint else None
    progress.start(f"{loop.num_chains} chains", total)
    try:
        while int(loop.counts.min()) < total:
            loop.advance()
            progress.update(min(int(loop.counts.min()), total), **loop.numbers())
            if checkpoint:
                checkpoint.save_if_due()
    except KeyboardInterrupt:  # in the middle of a step: what is written ends with the last block
        return False
    if checkpoint:
        checkpoint.save()
    return True


def _ship(executor: Executor, tasks: list[Task], density: LogDensity) -> ChainDraws:
    """Run every task on ``executor`` and put the draws together in order.

    The model travels, not its density: compiled code belongs to a process.
    """
    model = (density.model, density.data, density.dtype, density.device)
    num = sum(len(task.theta) for task in tasks)
    loads = [cloudpickle.dumps((each, model)) for each in tasks]
    try:
        parts = [future.result() for future in [executor.submit(_run_shipped, load) for load in loads]]
    except BrokenExecutor as error:
        raise RuntimeError(
            f"The executor ({type(executor).__name__}) died while running {num} chains: {error} Look for a worker that "
            f"ran out of memory; in a script, create process pools under if __name__ == '__main__'."
        ) from error
    except RuntimeError as error:
        if "fork-based" not in str(error):
            raise
        raise RuntimeError(
            f"The executor ({type(executor).__name__}) forks its workers, and torch's gradients do not survive that. Give it "
            f"mp_context=multiprocessing.get_context('spawn')."
        ) from error
    return _joined(parts)


def _joined(parts: list[ChainDraws]) -> ChainDraws:
    if len(parts) == 1:  # no second copy of all draws
        return parts[0]
    kept = min(part.theta.shape[1] for part in parts)
    names = parts[0].stats
    return ChainDraws(
        theta=np.concatenate([part.theta[:, :kept] for part in parts]),
        stats={name: np.concatenate([part.stats[name][:, :kept] for part in parts]) for name in names},
        num_gradients=sum(part.num_gradients for part in parts),
        complete=all(part.complete for part in parts),
    )


def _run_shipped(load: bytes) -> ChainDraws:
    """Run chains in a worker, on one thread, so that workers side by side do not fight for cores."""
    task, (model, data, dtype, device) = cloudpickle.loads(load)
    torch.set_num_threads(1)
    density = build_density(model, *data, dtype=dtype, device=device)
    return _run(task, density, Silent())
