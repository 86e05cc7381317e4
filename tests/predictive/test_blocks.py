"""Evaluation in blocks: bounded memory, and the same numbers whatever the blocks."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bnnzoo.engine import cores
from bnnzoo.predictive import blocks as module
from bnnzoo.predictive import sweep
from bnnzoo.predictive.blocks import Blocks, plan
from bnnzoo.predictive.sweep import evaluate


def outer(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    """A large intermediate, a small result."""
    return {"f": (torch.ones(1000) * (x @ theta)[:, None]).mean(-1), "norm": theta.square().sum()}


@pytest.fixture
def theta() -> Tensor:
    return torch.randn(13, 3)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(29, 3)


@pytest.mark.parametrize("blocks", [Blocks(1, 1), Blocks(5, 10), Blocks(13, None), Blocks(100, 29), Blocks(4, None)])
def test_blocks_do_not_change_the_numbers(theta, x, blocks):
    found = evaluate(outer, theta, (x,), 29, blocks)
    assert np.allclose(found["f"], theta @ x.T, rtol=1e-12)
    assert np.allclose(found["norm"], theta.square().sum(-1))


@pytest.mark.parametrize("minimum", [1, 10**9])
def test_tracing_does_not_change_the_numbers(theta, x, minimum, monkeypatch):
    monkeypatch.setattr(sweep, "MIN_BLOCKS_TO_TRACE", minimum)
    assert np.allclose(evaluate(outer, theta, (x,), 29, Blocks(5, 10))["f"], theta @ x.T, rtol=1e-12)


def test_the_number_of_threads_does_not_change_the_numbers(theta, x, monkeypatch):
    many = theta.repeat(40, 1)
    found = []
    for number in (1, 2, 3):
        monkeypatch.setattr(cores, "num_cores", lambda number=number: number)
        found.append(evaluate(outer, many, (x,), 29, Blocks(1, 15))["f"])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_a_function_that_vmap_cannot_batch_is_looped(theta, x):
    def stubborn(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        assert np.isfinite(theta[0].item())
        return {"f": x @ theta}

    assert np.allclose(evaluate(stubborn, theta, (x,), 29, Blocks(5, 10))["f"], theta @ x.T)


def test_plan_bounds_the_largest_tensor(theta, x):
    blocks = plan(outer, theta[0], (x,), 29, splits=True, chunk_size=None)
    assert blocks.draws * (blocks.rows or 0) * 1000 <= module.MAX_ELEMENTS
    assert plan(outer, theta[0], (x,), 29, splits=False, chunk_size=None).rows is None


def test_plan_splits_rows_when_one_draw_is_too_large(theta, x, monkeypatch):
    monkeypatch.setattr(module, "MAX_ELEMENTS", 5000)
    blocks = plan(outer, theta[0], (x,), 29, splits=True, chunk_size=None)
    assert blocks.draws == 1
    assert 1000 * (blocks.rows or 29) <= 5000


def test_plan_follows_a_chunk_size(theta, x):
    assert plan(outer, theta[0], (x,), 29, splits=True, chunk_size=58) == Blocks(2, 29)
    assert plan(outer, theta[0], (x,), 29, splits=True, chunk_size=7) == Blocks(1, 7)
    assert plan(outer, theta[0], (x,), 29, splits=False, chunk_size=7) == Blocks(1, None)


def test_memory_is_bounded_by_a_block_not_by_the_whole(x):
    theta, blocks = torch.randn(2000, 3), Blocks(10, None)
    evaluate(outer, theta, (x,), 29, blocks)  # the first in a process sets memory aside for all
    peak = max_elements(lambda: evaluate(outer, theta, (x,), 29, blocks))
    assert peak <= 10 * 29 * 1000


def max_elements(call) -> int:
    """Return the number of elements of the largest tensor made while ``call`` runs."""
    with module._LargestTensor() as largest:
        call()
    return largest.numel
