"""Shipping independent parts of a fit to any ``concurrent.futures`` executor."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from typing import Any

import cloudpickle

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.engine.cores import one_core

__all__ = ["run_on"]

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

    The model and its data travel to the workers, which trace and compile a density of their own: compiled code belongs to
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
    if _forks(executor):  # before anything hangs: the threads of a library do not survive a fork, its locks do
        raise RuntimeError(_no_forks(executor))
    model = (density.model, density.data, density.dtype, density.device)
    loads = [cloudpickle.dumps((function, task, model)) for task in tasks]
    try:
        return [cloudpickle.loads(f.result()) for f in [executor.submit(_in_worker, load) for load in loads]]
    except BrokenExecutor as error:
        raise RuntimeError(
            f"The executor ({type(executor).__name__}) died while running {what}: {error} Look for a worker that "
            f"ran out of memory; in a script, create process pools under if __name__ == '__main__'."
        ) from error
    except RuntimeError as error:
        if "fork-based" not in str(error):
            raise
        raise RuntimeError(_no_forks(executor)) from error


def _forks(executor: Executor) -> bool:
    context = getattr(executor, "_mp_context", None)
    return context is not None and context.get_start_method() == "fork"


def _no_forks(executor: Executor) -> str:
    return (
        f"The executor ({type(executor).__name__}) forks its workers, and torch's gradients do not survive a fork. Give it "
        f"mp_context=multiprocessing.get_context('spawn')."
    )


def _in_worker(load: bytes) -> bytes:
    """Run one task; its result returns as bytes, since pickled tensors would travel as handles on shared memory."""
    function, task, (model, data, dtype, device) = cloudpickle.loads(load)
    with TURN, one_core():
        result: Any = function(task, build_density(model, *data, dtype=dtype, device=device))
    packed: bytes = cloudpickle.dumps(result)
    return packed
