"""Number of cores that this process may use, and thread counts that are set and restored."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from threadpoolctl import ThreadpoolController

__all__ = ["in_threads", "num_cores", "one_arithmetic_thread", "one_blas_thread", "one_core"]

IS_ONE_OF_MANY: ContextVar[bool] = ContextVar("IS_ONE_OF_MANY", default=False)


def num_cores() -> int:
    """Return the number of cores that this process may use, often fewer than a shared machine has; 1 under ``one_core``."""
    if IS_ONE_OF_MANY.get():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_arithmetic_thread() -> Iterator[None]:
    """Let torch compute on the calling thread alone, so that threads running side by side do not compete for cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy multiply and factorise on the calling thread alone: for small matrices its threads only keep cores busy."""
    with _blas().limit(limits=1):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_core() -> Iterator[None]:
    """Use a single core, so that workers on one machine do not compete for cores."""
    token = IS_ONE_OF_MANY.set(True)
    try:
        with one_arithmetic_thread(), one_blas_thread():
            yield
    finally:
        IS_ONE_OF_MANY.reset(token)


def in_threads[Item](run: Callable[[Item], None], items: Sequence[Item], num_threads: int | None = None) -> None:
    """Call ``run`` for every item, on threads each of which computes alone, so that results do not depend on their number.

    The first error is raised once the calls under way have ended. ``run`` calls no Pyro model: Pyro's handlers are global.

    Parameters
    ----------
    run : callable
    items : sequence
    num_threads : int, optional
        Default: one for each core that this process may use.

    Examples
    --------
    >>> found = {}
    >>> in_threads(lambda n: found.update({n: n * n}), [1, 2, 3], num_threads=2)
    >>> sorted(found.items())
    [(1, 1), (2, 4), (3, 9)]
    """
    number = min(num_threads or num_cores(), len(items))
    with one_arithmetic_thread():
        if number < 2:
            for item in items:
                run(item)
            return
        left = iter(items)

        def run_next() -> None:
            try:
                for item in left:
                    run(item)
            finally:
                deque(left, maxlen=0)  # after an error, others begin no more

        with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            running = [pool.submit(run_next) for _ in range(number)]
            try:
                for each in running:
                    each.result()
            finally:
                deque(left, maxlen=0)
