"""Executors for tests."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import torch

__all__ = ["InProcess", "kill_in_mid_run"]


class InProcess(Executor):
    """An executor that runs each task at once, in the caller's process, and counts them."""

    def __init__(self) -> None:
        self.num_tasks = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_tasks += 1
        threads = torch.get_num_threads()
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        torch.set_num_threads(threads)
        return future


def kill_in_mid_run(client: Any, pids: dict[str, int]) -> None:
    """Kill a worker two seconds after it has begun a task."""
    while not any(client.processing().values()):
        time.sleep(0.05)
    time.sleep(2.0)
    busy = next(address for address, tasks in client.processing().items() if tasks)
    os.kill(pids[busy], signal.SIGKILL)
