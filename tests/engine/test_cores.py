"""Work on several cores: thread counts are set and given back, and errors come out."""

import threading

import pytest
import torch

from bnnzoo.engine.cores import in_threads, num_cores, one_core


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_every_item_runs_once_on_a_thread_that_computes_alone(num_threads: int) -> None:
    before, found, threads = torch.get_num_threads(), [], set()

    def note(item: int) -> None:
        found.append((item, torch.get_num_threads()))
        threads.add(threading.get_ident())

    torch.set_num_threads(2)
    try:
        in_threads(note, range(8), num_threads)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert sorted(found) == [(n, 1) for n in range(8)]
    assert 1 <= len(threads) <= num_threads


def test_errors_are_raised_and_threads_given_back() -> None:
    def fail(item: int) -> None:
        if item == 3:
            raise ValueError("item 3")

    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="item 3"):
        in_threads(fail, range(8), 2)
    assert torch.get_num_threads() == before


def test_one_of_many_workers_has_one_core() -> None:
    with one_core():
        assert num_cores() == 1
        in_threads(lambda _: None, range(3))
