"""Shipping independent parts of a fit to any ``concurrent.futures`` executor."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context

import cloudpickle
import torch

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.cores import one_core

__all__ = ["as_ready", "run_on"]

TURN = threading.RLock()
"""Pyro's handlers are global to a process, so tasks in threads of one process take turns."""


def run_on[Task, Result](
    executor: Executor,
    function: Callable[[Task, LogDensity], Result],
    tasks: Sequence[Task],
    density: LogDensity,
    what: str,
) -> list[Result]:
    """Run ``function(task, density)`` for every task on an executor and return the results in order.

    The model and its data are sent to the workers, which trace and compile a density of their own: compiled code belongs to
    a process. Each worker computes on one thread, so that workers side by side do not compete for cores. The threads of a
    thread pool take turns, since Pyro's handlers are global: only processes run side by side.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        A process pool, Dask's ``Client.get_executor()``, mpi4py's ``MPIPoolExecutor``, ...
    function : callable
        Anything cloudpickle can send.
    tasks : sequence
        One for each call.
    density : LogDensity
    what : str
        What the tasks are, for error messages: ``"4 chains"``.

    Raises
    ------
    RuntimeError
        If the executor dies, or forks its workers.
    ValueError
        If the data are not in memory.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> with ThreadPoolExecutor() as executor:
    ...     run_on(executor, lambda n, d: n * d.num_params, [1, 2], build_density(target.model, *target.data), "2 products")
    [3, 6]
    """
    if isinstance(density, StreamedDensity):
        raise ValueError("executor= cannot send data that are on disk or come from a loader: leave executor out.")
    model = (density.model, density.data, density.dtype, density.device)
    with _explained(executor, what):
        loads = [cloudpickle.dumps((partial(_at_density, function, *model), task)) for task in tasks]
        return [cloudpickle.loads(f.result()) for f in [executor.submit(_in_worker, load) for load in loads]]


def as_ready[Task, Result](
    executor: Executor | None,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    what: str,
    num_workers: int = 1,
) -> Iterator[Result]:
    """Yield ``function(task)`` of every task as soon as it is there, and raise an error after what is there.

    Workers compute on one thread each and take turns, as those of :func:`run_on` do. If the caller stops, what has not begun
    is cancelled.

    Parameters
    ----------
    executor : concurrent.futures.Executor or None
        None starts processes of its own, which end with the work.
    function : callable
        Anything cloudpickle can send.
    tasks : sequence
        One for each call.
    what : str
        As for :func:`run_on`.
    num_workers : int
        Most processes that are started.

    Raises
    ------
    RuntimeError
        If the executor dies, or forks its workers.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor() as executor:
    ...     sorted(as_ready(executor, abs, [-1, 2], "2 numbers"))
    [1, 2]
    """
    if not tasks:
        return
    pool = executor or ProcessPoolExecutor(min(num_workers, len(tasks)), get_context("spawn"))
    running: set[Future[bytes]] = set()
    try:
        with _explained(pool, what):
            for task in tasks:
                running.add(pool.submit(_in_worker, cloudpickle.dumps((function, task))))
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in sorted(done, key=lambda each: each.exception() is not None):
                    yield cloudpickle.loads(each.result())
    finally:
        for each in running:
            each.cancel()
        if executor is None:
            pool.shutdown()


@contextmanager
def _explained(executor: Executor, what: str) -> Iterator[None]:
    """Say in a sentence why an executor fails."""
    context = getattr(executor, "_mp_context", None)
    # before anything hangs: the threads of a library do not survive a fork, its locks do
    if context is not None and context.get_start_method() == "fork":
        raise RuntimeError(_no_forks(executor))
    try:
        yield
    except BrokenExecutor as error:
        raise RuntimeError(
            f"The executor ({type(executor).__name__}) died while running {what}: {error} Look for a worker that "
            f"ran out of memory; in a script, create process pools under if __name__ == '__main__'."
        ) from error
    except RuntimeError as error:
        if "fork-based" not in str(error):
            raise
        raise RuntimeError(_no_forks(executor)) from error


def _no_forks(executor: Executor) -> str:
    return (
        f"The executor ({type(executor).__name__}) forks its workers, and torch's gradients do not survive a fork. Give it "
        f"mp_context=multiprocessing.get_context('spawn')."
    )


def _at_density[Task, Result](
    function: Callable[[Task, LogDensity], Result],
    model: Model,
    data: Data,
    dtype: torch.dtype,
    device: torch.device,
    task: Task,
) -> Result:
    return function(task, build_density(model, *data, dtype=dtype, device=device))


def _in_worker(load: bytes) -> bytes:
    """Run one task; its result returns as bytes, since pickled tensors would be sent as handles on shared memory."""
    function, task = cloudpickle.loads(load)
    with TURN, one_core():
        result = function(task)
    packed: bytes = cloudpickle.dumps(result)
    return packed
