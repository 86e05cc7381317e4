"""Random numbers in blocks: the same for the same seed, traced or not, and independent of each other."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet, Distribution, Gamma, Normal, Uniform

from bnnzoo.engine.lowered import Lowered, Specialized
from bnnzoo.predictive import blocks as of_blocks
from bnnzoo.predictive import sweep as module
from bnnzoo.predictive.block_graphs import block_graph
from bnnzoo.predictive.blocks import Arrays, Blocks, draw_blocks, rows_of
from bnnzoo.predictive.sweep import Sweep, evaluate


@pytest.fixture
def x() -> Tensor:
    return torch.randn(29, 3)


def draws_of(*distributions: Callable[[Tensor], Distribution]) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    """Return a function that draws from each of several distributions given ``f = x theta``."""

    def function(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        return {f"y{i}": distribution(x @ theta).sample() for i, distribution in enumerate(distributions)}

    return function


def evaluated(
    function: Callable[..., Any], x: Tensor, monkeypatch: pytest.MonkeyPatch, *, traced: bool, **kwargs: Any
) -> Arrays:
    monkeypatch.setattr(module, "MIN_BLOCKS_TO_TRACE", 1 if traced else 10**9)
    return evaluate(function, torch.zeros(100, 3), (x,), 29, Blocks(16, 8), 0, **kwargs)


def normal(f: Tensor) -> Distribution:
    return Normal(f, 1.0, validate_args=False)


def uniform(f: Tensor) -> Distribution:
    return Uniform(f, f + 1.0, validate_args=False)


def gamma(f: Tensor) -> Distribution:
    return Gamma(f.exp(), 1.0, validate_args=False)


def dirichlet(f: Tensor) -> Distribution:
    return Dirichlet(f.exp()[:, None].expand(-1, 2), validate_args=False)


@pytest.mark.parametrize("is_traced", [False, True])
def test_draws_differ_between_blocks_and_repeat_with_the_seed(x, is_traced, monkeypatch):
    monkeypatch.setattr(module, "MIN_BLOCKS_TO_TRACE", 1 if is_traced else 10**9)
    theta, blocks = torch.zeros(100, 3), Blocks(16, 8)
    found = (evaluate(draws_of(normal), theta, (x,), 29, blocks, seed)["y0"] for seed in (0, 0, 1))
    first, same, other = found
    assert np.array_equal(first, same)
    assert len(np.unique(first)) == first.size
    assert not np.any(first == other)


@pytest.mark.parametrize("distribution", [normal, uniform, gamma])
def test_tracing_does_not_change_what_is_drawn(x, distribution, monkeypatch):
    traced, eager = (evaluated(draws_of(distribution), x, monkeypatch, traced=t)["y0"] for t in (True, False))
    assert np.allclose(traced, eager, rtol=1e-12)


@pytest.mark.parametrize("distribution", [normal, uniform, gamma, dirichlet])
def test_equal_distributions_are_drawn_from_independently(x, distribution, monkeypatch):
    found = evaluated(draws_of(distribution, distribution), x, monkeypatch, traced=True)
    assert not np.any(found["y0"] == found["y1"])


def test_operations_that_torchs_compiler_would_merge_are_not_compiled_by_it(x, monkeypatch):
    specialize = Lowered.specialize

    def worth_compiling(*args: Any) -> Specialized:
        found = specialize(*args)
        found.worth_compiling_after = 10
        return found

    monkeypatch.setattr(Lowered, "specialize", worth_compiling)
    monkeypatch.setattr(Specialized, "compiled", lambda *_: pytest.fail("compiled"))
    args = (torch.zeros(16, 3), x[:8])
    with pytest.raises(pytest.fail.Exception, match="compiled"):
        block_graph(draws_of(normal), args, 1000)
    found = block_graph(draws_of(dirichlet, dirichlet), args, 1000)
    assert found is not None and found.draws_from_generator


@pytest.mark.parametrize("is_traced", [False, True])
def test_a_pure_function_besides_sees_the_same_parameters(x, is_traced, monkeypatch):
    def f(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        return {"f": x @ theta}

    monkeypatch.setattr(module, "MIN_BLOCKS_TO_TRACE", 1 if is_traced else 10**9)
    theta = torch.randn(100, 3)
    read = partial(rows_of, (x,), num_rows=29)
    narrow = draws_of(lambda f: Normal(f, 1e-9, validate_args=False))
    found = Sweep(narrow, theta, read, 29, Blocks(16, 8), besides=f)(read)
    assert np.allclose(found["f"], theta @ x.T, rtol=1e-12)
    assert np.abs(found["y0"] - found["f"]).max() < 1e-8


@pytest.mark.slow
def test_a_graph_worth_compiling_draws_the_same(x, monkeypatch):
    eager = evaluated(draws_of(normal), x, monkeypatch, traced=False)["y0"]
    monkeypatch.setattr("bnnzoo.engine.choose.COMPILE_SECONDS", 0.0)
    assert np.allclose(evaluated(draws_of(normal), x, monkeypatch, traced=True)["y0"], eager, rtol=1e-12)


def test_blocks_depend_on_the_model_alone(x):
    def outer(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        return {"y": torch.randn(1000, len(x)).mean(0) + x @ theta}

    theta = torch.randn(13, 3)
    blocks = draw_blocks(outer, theta[0], (x,), 29, splits=True)
    assert blocks == draw_blocks(outer, theta[1], (x,), 29, splits=True)
    assert blocks.draws * (blocks.rows or 0) * 1000 <= of_blocks.MAX_RANDOM_ELEMENTS


def test_a_function_besides_that_cannot_be_batched_leaves_the_draws_alone(x):
    """What is kept must not change what is drawn."""

    def stubborn(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        assert np.isfinite(theta[0].item())
        return {"f": x @ theta}

    theta, read, blocks = torch.randn(40, 3), partial(rows_of, (x,), num_rows=29), Blocks(16, 8)
    alone, both = (
        Sweep(draws_of(normal), theta, read, 29, blocks, besides=besides)(read) for besides in (None, stubborn)
    )
    assert np.array_equal(both["y0"], alone["y0"])
    assert np.allclose(both["f"], theta @ x.T, rtol=1e-12)
