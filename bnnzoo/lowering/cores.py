"""How many cores this process may use, and thread counts that are set and restored."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

__all__ = ["num_cores", "one_arithmetic_thread", "one_core"]

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
def one_core() -> Iterator[None]:
    """Use a single core, so that workers on one machine do not compete for cores."""
    token = IS_ONE_OF_MANY.set(True)
    try:
        with one_arithmetic_thread():
            yield
    finally:
        IS_ONE_OF_MANY.reset(token)
