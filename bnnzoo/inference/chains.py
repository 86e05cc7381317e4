"""From a method's settings to a posterior: starts, chains here or on an executor, and what ArviZ wants to know of them."""

import time
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.core.posterior import Draws, FitInfo
from bnnzoo.core.types import Data, Method, Progress, Run, Silent
from bnnzoo.inference.config import config_of
from bnnzoo.inference.hamiltonian import Kernel
from bnnzoo.inference.loop import ChainLoop, LoopSettings
from bnnzoo.inference.starts import Start, starting_points
from bnnzoo.inference.steps import STATS

__all__ = ["ChainSettings", "sample_chains"]


@dataclass(frozen=True)
class ChainSettings:
    """How many chains of what length, where they start, and how they adapt."""

    num_chains: int
    loop: LoopSettings
    init: Start


@dataclass(frozen=True)
class ChainDraws:
    """Draws of some chains, as arrays that travel between processes."""

    theta: NDArray[np.floating]
    stats: NDArray[np.float64]
    num_gradients: int
    complete: bool


def sample_chains(
    method: Method, kernel: Kernel, settings: ChainSettings, density: LogDensity, data: Data, run: Run
) -> Draws:
    """Run chains of ``kernel`` and return their draws ``[C, S, P]``.

    Raises
    ------
    ValueError
        If a number of chains or draws is not positive.
    """
    _refuse_impossible(type(method).__name__, settings)
    began = time.perf_counter()
    theta = starting_points(settings.init, settings.num_chains, density, data, run)
    if run.executor is None:
        result = run_chains(kernel, density, data, settings.loop, theta, run.seed, 0, run.progress)
    else:
        result = _ship(run.executor, kernel, density, data, settings.loop, theta, run.seed)
    stats = {name: torch.from_numpy(result.stats[..., i]) for i, name in enumerate(STATS)}
    info = FitInfo(
        method=type(method).__name__,
        sampling="mcmc",
        seed=run.seed,
        num_gradients=result.num_gradients,
        seconds=time.perf_counter() - began,
        complete=result.complete,
        config=config_of(method),
        sample_stats=stats | {name: stats[name].to(kind) for name, kind in KINDS.items()},
    )
    return Draws(density, info, torch.from_numpy(result.theta).to(density.device))


KINDS = {"n_steps": torch.int64, "tree_depth": torch.int64, "diverging": torch.bool}


def run_chains(
    kernel: Kernel,
    density: LogDensity,
    data: Data,
    settings: LoopSettings,
    theta: Tensor,
    seed: int,
    first_chain: int,
    progress: Progress,
) -> ChainDraws:
    """Run chains in this process, all in one batch; interrupted, return the draws that every chain has.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before every chain has a draw.
    """
    loop = ChainLoop(kernel, density, data, settings, theta, seed, first_chain)
    complete = loop.run(progress)
    kept = min(int(loop.counts.min()) - settings.num_warmup, settings.num_draws)
    if kept < 1:
        raise KeyboardInterrupt("Interrupted during warm-up, before every chain had a draw.")
    arrays = loop.draws[:, :kept].cpu().numpy(), loop.stats[:, :kept].numpy()
    return ChainDraws(*arrays, num_gradients=loop.num_leaps * loop.num_chains, complete=complete)


def _ship(
    executor: Executor,
    kernel: Kernel,
    density: LogDensity,
    data: Data,
    settings: LoopSettings,
    theta: Tensor,
    seed: int,
) -> ChainDraws:
    """Run every chain as a task of its own on ``executor`` and put the draws together in order.

    The model travels, not its density: compiled code belongs to a process.
    """
    model = (density.model, data, density.dtype, density.device)
    tasks = [cloudpickle.dumps((kernel, model, settings, theta[c : c + 1], seed, c)) for c in range(len(theta))]
    try:
        parts = [future.result() for future in [executor.submit(_run_shipped, task) for task in tasks]]
    except BrokenExecutor as error:
        raise RuntimeError(
            f"The executor ({type(executor).__name__}) died while running {len(theta)} chains: {error} Look for a worker that "
            f"ran out of memory; in a script, create process pools under if __name__ == '__main__'."
        ) from error
    kept = min(part.theta.shape[1] for part in parts)
    return ChainDraws(
        theta=np.concatenate([part.theta[:, :kept] for part in parts]),
        stats=np.concatenate([part.stats[:, :kept] for part in parts]),
        num_gradients=sum(part.num_gradients for part in parts),
        complete=all(part.complete for part in parts),
    )


def _run_shipped(task: bytes) -> ChainDraws:
    """Run one chain in a worker, on one thread, so that workers side by side do not fight for cores."""
    kernel, (model, data, dtype, device), settings, theta, seed, chain = cloudpickle.loads(task)
    torch.set_num_threads(1)
    density = build_density(model, *data, dtype=dtype, device=device)
    return run_chains(kernel, density, data, settings, theta, seed, chain, Silent())


def _refuse_impossible(name: str, settings: ChainSettings) -> None:
    loop = settings.loop
    counts = {
        "num_chains": (settings.num_chains, 1),
        "num_draws": (loop.num_draws, 1),
        "num_warmup": (loop.num_warmup, 0),
    }
    for argument, (value, least) in counts.items():
        if value < least:
            raise ValueError(f"{name}({argument}={value}): write {least} or more.")
    if not 0 < loop.target_accept < 1:
        raise ValueError(
            f"{name}(target_accept={loop.target_accept}): write an acceptance rate between 0 and 1, such as 0.8."
        )
    if loop.step_size is None and loop.num_warmup == 0:
        raise ValueError(f"{name}(num_warmup=0) tunes nothing: give step_size=..., or warm up.")
