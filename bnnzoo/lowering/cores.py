"""How many cores this process may use, and thread counts that are set and given back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["num_cores", "one_arithmetic_thread"]


def num_cores() -> int:
    """Return the number of cores that this process may use, which on shared machines is less than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_arithmetic_thread() -> Iterator[None]:
    """Let torch compute on the calling thread alone, so that threads side by side do not fight for cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
