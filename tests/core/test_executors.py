"""Tasks on executors: results in order, tensors as they were, and one sentence when an executor fails."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from bnnzoo.core.executors import as_ready, run_on
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.engine.cores import num_cores
from bnnzoo.testing import linear_gaussian
from tests.helpers.executors import InProcess

TARGET = linear_gaussian()


def density() -> LogDensity:
    return build_density(TARGET.model, *TARGET.data)


def log_joint(theta: Tensor, density: LogDensity) -> Tensor:
    return density.log_joint(theta, *density.data)


def dying(task: Any, density: LogDensity) -> None:
    os._exit(1)


def test_results_come_in_the_order_of_the_tasks() -> None:
    executor, points = InProcess(), list(torch.randn(3, 3))
    found = run_on(executor, log_joint, points, density(), "3 points")
    assert executor.num_tasks == 3
    for theta, value in zip(points, found, strict=True):
        assert torch.equal(value, log_joint(theta, density()))


def test_workers_know_what_cannot_be_imported_there() -> None:
    shift = 2.0
    (found,) = run_on(InProcess(), lambda task, d: task + shift + d.num_params, [1.0], density(), "1 sum")
    assert found == 6.0


def test_threads_of_one_process_take_turns_and_leave_torch_as_it_was() -> None:
    points, threads = list(torch.randn(8, 3)), torch.get_num_threads()
    with ThreadPoolExecutor(4) as executor:
        found = run_on(executor, log_joint, points, density(), "8 points")
    for theta, value in zip(points, found, strict=True):
        assert torch.equal(value, log_joint(theta, density()))
    assert torch.get_num_threads() == threads


class Failing(Executor):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def submit(self, *_: Any, **__: Any) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (BrokenExecutor("a child process terminated."), r"\(Failing\) died while running 4 members: .*ran out of memory"),
        (RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing"),
         r"\(Failing\) forks its workers.*get_context\('spawn'\)"),
        (RuntimeError("something else"), "^something else$"),
    ],
)  # fmt: skip
def test_failures_are_explained(error: Exception, sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        run_on(Failing(error), log_joint, [torch.zeros(3)], density(), "4 members")
    with pytest.raises(RuntimeError, match=sentence):
        list(as_ready(Failing(error), abs, [1], "4 members"))


def test_what_is_ready_comes_before_the_error_of_another_task() -> None:
    found = as_ready(InProcess(), float, ["a", "2", "3"], "3 numbers")
    assert sorted(next(found) for _ in range(2)) == [2.0, 3.0]
    with pytest.raises(ValueError, match=r"could not convert string to float: 'a'"):
        next(found)


class Busy(InProcess):
    """Runs the first task and has no time for others."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.num_tasks == 0:
            return super().submit(fn, *args, **kwargs)
        self.waiting.append(Future())
        return self.waiting[-1]


def test_what_has_not_begun_is_cancelled_if_the_caller_stops() -> None:
    executor = Busy()
    found = as_ready(executor, abs, [-1, -2, -3], "3 numbers")
    assert next(found) == 1
    found.close()
    assert [each.cancelled() for each in executor.waiting] == [True, True]


@pytest.mark.parametrize("run", [run_on, as_ready])
def test_workers_compute_on_one_core(run: Any) -> None:
    cores = list(run(InProcess(), lambda *_: num_cores(), [0], *([density()] if run is run_on else []), "1 number"))
    assert cores == [1]


@pytest.mark.slow
def test_a_process_pool_whose_worker_dies() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool, pytest.raises(RuntimeError, match="died while running"):
        run_on(pool, dying, [0], density(), "1 task")
