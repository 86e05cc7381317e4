"""Blocks in native code and in threads: the numbers of torch's operations, however the work is spread."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Dirichlet,
    Distribution,
    Multinomial,
    Normal,
    Poisson,
    VonMises,
    dirichlet,
)

from bnnzoo.core.program.batched_noise import batchable_draws
from bnnzoo.engine import cores
from bnnzoo.engine.torch_private import batchable_dirichlet
from bnnzoo.predictive import block_graphs, sweep
from bnnzoo.predictive.block_graphs import block_graph
from bnnzoo.predictive.blocks import Arrays, BlockArrays, Blocks, tiles_of
from bnnzoo.predictive.sweep import evaluate

type Function = Callable[[Tensor, Tensor], dict[str, Tensor]]

ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-11}
HIDDEN = 5


def network(theta: Tensor, x: Tensor) -> Tensor:
    hidden = torch.tanh(x @ theta[: 3 * HIDDEN].reshape(3, HIDDEN) + theta[3 * HIDDEN : 4 * HIDDEN])
    return hidden @ theta[4 * HIDDEN : 5 * HIDDEN]


def normal(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    loc, scale = network(theta, x), theta[-1].exp()
    drawn = Normal(loc, scale, validate_args=False).sample()
    return {"y": drawn, "mean": loc, "variance": scale.square().expand(loc.shape), "seen": (x[:, 0] - loc).square()}


def binary(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    probs = network(theta, x).sigmoid()
    return {"mean": probs, "y": Bernoulli(probs, validate_args=False).sample()}


def counts(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    rate = network(theta, x).exp()
    return {"y": Poisson(rate, validate_args=False).sample(), "mean": rate}


def classes(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    logits = torch.stack([network(theta, x), -network(theta, x), x[:, 0]], 1)
    return {"y": Categorical(logits=logits, validate_args=False).sample(), "probs": logits.softmax(1)}


def two_sites(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    first = Normal(network(theta, x), 1.0, validate_args=False).sample()
    return {"first": first, "second": Normal(2 * first, 0.5, validate_args=False).sample(), "mean": 2 * first}


FUNCTIONS: list[Function] = [normal, binary, counts, classes, two_sites]


def successes(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    probs = network(theta, x).sigmoid()
    drawn = Binomial(10, probs, validate_args=False).sample()
    return {"y": drawn, "mean": 10 * probs, "variance": 10 * probs * (1 - probs)}


def proportions(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    mean = network(theta, x).sigmoid()
    drawn = Beta(8 * mean, 8 * (1 - mean), validate_args=False).sample()
    return {"y": drawn, "mean": mean, "variance": mean * (1 - mean) / 9}


def compositions(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    weights = torch.stack([network(theta, x), -network(theta, x), x[:, 0]], 1).exp()
    total = weights.sum(1, keepdim=True)
    mean = weights / total
    drawn = Dirichlet(weights, validate_args=False).sample()
    return {"y": drawn, "mean": mean, "variance": mean * (1 - mean) / (total + 1)}


def tallies(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    probs = torch.stack([network(theta, x), -network(theta, x), x[:, 0]], 1).softmax(1)
    drawn = Multinomial(5, probs, validate_args=False).sample()
    return {"y": drawn, "mean": 5 * probs, "variance": 5 * probs * (1 - probs)}


def angles(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
    loc, concentration = 3 * network(theta, x), x[:, 0].exp()
    turn = VonMises(loc, concentration, validate_args=False).sample() - loc
    length = torch.special.i1e(concentration) / torch.special.i0e(concentration)
    return {
        "y": torch.stack([turn.cos(), turn.sin()], 1),
        "mean": torch.stack([length, 0 * length], 1),
        "variance": torch.stack([1 - length / concentration - length**2, length / concentration], 1),
    }


BATCHED: list[Function] = [successes, proportions, compositions, tallies, angles]
"""Draws of which torch has no rule for copies, or none that is right."""


def arguments(dtype: torch.dtype, num_draws: int = 23) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(num_draws, 5 * HIDDEN + 1, generator=generator, dtype=dtype)
    return theta, torch.randn(41, 3, generator=generator, dtype=dtype)


def evaluated(
    function: Function, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype = torch.float64, *, how: str = "native"
) -> Arrays:
    """Evaluate in native code, with torch's operations, or one block after the other as Python."""
    monkeypatch.setattr(sweep, "MIN_BLOCKS_TO_TRACE", 10**9 if how == "eager" else 1)
    monkeypatch.setattr(block_graphs, "NATIVE_PAYS_FROM_SECONDS", 0.0 if how == "native" else 1e9)
    theta, x = arguments(dtype)
    return evaluate(function, theta, (x,), len(x), Blocks(8, 16), 3)


QUICK = {(normal, torch.float32), (classes, torch.float64)}


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        pytest.param(f, dtype, id=f"{f.__name__}, {dtype}", marks=[] if (f, dtype) in QUICK else [pytest.mark.slow])
        for f in FUNCTIONS
        for dtype in ROUNDING
    ],
)
def test_native_code_gives_the_numbers_of_torchs_operations(function: Function, dtype: torch.dtype, monkeypatch):
    eager = evaluated(function, monkeypatch, dtype, how="eager")
    for how in ("traced", "native"):
        found = evaluated(function, monkeypatch, dtype, how=how)
        assert list(found) == list(eager)
        for name, values in eager.items():
            assert found[name].dtype == values.dtype
            np.testing.assert_allclose(found[name], values, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@pytest.mark.parametrize("function", BATCHED, ids=lambda function: function.__name__)
def test_draws_of_all_copies_are_made_at_once_and_are_independent(function: Function, monkeypatch):
    monkeypatch.setattr(sweep, "looped", lambda *_: pytest.fail("copies are drawn one after the other"))
    monkeypatch.setattr(sweep, "MIN_BLOCKS_TO_TRACE", 10**9)
    theta, x = arguments(torch.float64, 1)
    found = evaluate(function, theta.expand(2000, -1), (x,), len(x), Blocks(500, 16), 3)
    score = (found["y"] - found["mean"]) / np.sqrt(found["variance"])
    num_draws, cells = len(score), score[0].size
    assert np.abs(score.mean(0)).max() < 4.5 / np.sqrt(num_draws)
    kurtosis = (score**4).mean()
    assert abs((score**2).mean() - 1) < 5 * np.sqrt((kurtosis - 1) / (num_draws * cells))


def test_what_a_model_makes_of_its_own_tensors_stays_as_it_is():
    with batchable_draws():
        x = torch.full((3,), torch.nan)
        assert x.new([2.0, 3.0]).tolist() == [2.0, 3.0] and x.new(torch.Size([2, 4])).shape == (2, 4)
        assert torch.tensor([1, 2]).new([4, 5]).tolist() == [4, 5]
        assert torch.binomial(count=torch.tensor(3.0), prob=torch.tensor(1.0)) == 3
        concentration = torch.ones(2, requires_grad=True)
        assert Dirichlet(concentration).rsample().requires_grad and not Dirichlet(concentration).sample().requires_grad


def test_contexts_of_two_threads_that_overlap_leave_torch_as_it_was():
    before, first, second = dirichlet._Dirichlet, batchable_dirichlet(), batchable_dirichlet()
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
    assert dirichlet._Dirichlet is before


@pytest.mark.parametrize("function", BATCHED, ids=lambda function: function.__name__)
def test_graphs_of_such_draws_give_the_same_numbers(function: Function, monkeypatch):
    monkeypatch.setattr(Distribution, "_validate_args", False)  # of the parts of a Multinomial, as within a model
    theta, x = arguments(torch.float64)
    assert block_graph(function, (theta[:8], x[:16]), 2) is not None
    eager, traced = (evaluated(function, monkeypatch, how=how) for how in ("eager", "traced"))
    for name, values in eager.items():
        np.testing.assert_allclose(traced[name], values, rtol=1e-11, atol=1e-11)


def test_native_code_runs_where_it_pays(monkeypatch):
    theta, x = arguments(torch.float32)
    many = block_graph(normal, (theta[:8], x[:16]), 10**6)
    assert many is not None and isinstance(many.run, block_graphs._NativeBlock)
    monkeypatch.setattr(block_graphs, "_native", lambda *_: pytest.fail("native code does not pay"))
    few = block_graph(normal, (theta[:8], x[:16]), 100)
    assert few is not None and few.draws_from_generator


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_kind_of_outcome_runs_in_native_code(function: Function):
    theta, x = arguments(torch.float64)
    found = block_graph(function, (theta[:8], x[:16]), 10**6)
    assert found is not None and isinstance(found.run, block_graphs._NativeBlock)


@pytest.mark.parametrize("how", ["native", "traced"])
def test_the_result_does_not_depend_on_the_number_of_threads(how: str, monkeypatch):
    monkeypatch.setattr(sweep, "BLOCKS_AT_ONCE", 1)
    before, found = torch.get_num_threads(), []
    for number in (1, 2, 3):
        monkeypatch.setattr(cores, "num_cores", lambda number=number: number)
        found.append(evaluated(normal, monkeypatch, torch.float32, how=how))
        assert torch.get_num_threads() == before
    for other in found[1:]:
        assert all(np.array_equal(other[name], values) for name, values in found[0].items())


def test_the_global_random_stream_is_left_alone(monkeypatch):
    before = torch.get_rng_state()
    evaluated(normal, monkeypatch, torch.float32)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_not_written_in_cpp_is_left_to_torch(monkeypatch):
    def roots(theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        matrix = torch.eye(3, dtype=x.dtype) * (1 + theta[0].square())
        scale = torch.matrix_exp(-matrix)[0, 0] + 0 * network(theta, x)
        return {"y": Normal(0.0, scale, validate_args=False).sample(), "scale": scale}

    theta, x = arguments(torch.float64)
    assert block_graphs._native(roots, (theta[:8], x[:16])) is None
    eager = evaluated(roots, monkeypatch, how="eager")
    found = evaluated(roots, monkeypatch)
    assert all(np.allclose(found[name], values, rtol=1e-11) for name, values in eager.items())


def test_code_that_gives_other_numbers_is_not_used(monkeypatch):
    class Wrong(block_graphs.NativeRuns):
        def __call__(self, *inputs: Any, into: Any = ()) -> list[Tensor]:
            return [each + 1 for each in super().__call__(*inputs)]

    expected = evaluated(normal, monkeypatch, torch.float32)
    monkeypatch.setattr(block_graphs, "NativeRuns", Wrong)
    found = evaluated(normal, monkeypatch, torch.float32)
    assert all(np.allclose(found[name], values, rtol=1e-4, atol=1e-4) for name, values in expected.items())


def test_an_error_in_a_thread_is_raised(monkeypatch):
    def fails(self: BlockArrays, *args: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(BlockArrays, "places", fails)
    with pytest.raises(MemoryError, match="no room"):
        evaluated(normal, monkeypatch, torch.float32)


@pytest.mark.parametrize(("num_draws", "num_rows"), [(23, 41), (1, 1), (16, 17), (100, 29)])
def test_every_draw_and_row_is_kept_once(num_draws: int, num_rows: int):
    counted = np.zeros((num_draws, num_rows), dtype=int)
    for tile in tiles_of(num_draws, num_rows, Blocks(8, 16)):
        counted[tile.kept_draws, tile.kept_rows] += 1
    assert (counted == 1).all()
