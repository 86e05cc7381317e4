"""Loops in native code, in graphs and in Python: the same numbers, in whatever pieces they are run."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine.loops import Chunk, while_loop
from bnnzoo.engine.torch_private import LoweringWarning


class State(NamedTuple):
    """A number, a vector, rows written one by one, whether all is well, and a matrix written as a whole."""

    step: Tensor
    point: Tensor
    rows: Tensor
    well: Tensor
    products: Tensor


def start() -> State:
    return State(torch.tensor(0), torch.linspace(-1, 1, 6), torch.zeros(10, 6), torch.tensor(True), torch.zeros(6, 6))


def limits(last: int) -> tuple[Tensor, Tensor]:
    return torch.tensor(last), torch.linspace(0.5, 1.5, 6)


def going(state: State, fixed: Any) -> Tensor:
    return (state.step < fixed[0]) & state.well


def body(state: State, fixed: Any) -> State:
    first = (torch.zeros_like(state.step), state.point)
    _, point = while_loop(lambda s, f: s[0] < 3, lambda s, f: (s[0] + 1, torch.sin(s[1]) * f[1]), first, fixed)
    rows = state.rows.index_put((state.step.remainder(10).view(1),), point[None])
    return State(
        state.step + 1, point, rows, state.well & (point.sum() < 1e9), state.products + torch.outer(point, point)
    )


def by_hand(last: int) -> State:
    step, point, rows, _, products = start()
    _, factor = limits(last)
    for i in range(last):
        for _ in range(3):
            point = torch.sin(point) * factor
        rows[i % 10] = point
        products = products + torch.outer(point, point)
    return State(step + last, point, rows, torch.tensor(True), products)


def check(found: State, expected: State) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def run(chunk: Chunk, *ends: int) -> State:
    state = chunk.pack(start())
    for end in ends:
        chunk(state, chunk.pack_fixed(limits(end)))
    return chunk.unpack(state)


HOWS = [False, pytest.param(True, marks=pytest.mark.slow)]


def test_loop_in_python() -> None:
    check(while_loop(going, body, start(), limits(25)), by_hand(25))


@pytest.mark.parametrize("compiles", HOWS)
def test_chunk(compiles: bool) -> None:
    chunk = Chunk(going, body, start(), limits(1), compiles=compiles)
    assert chunk.how == ("compiled" if compiles else "traced")
    check(run(chunk, 25), by_hand(25))


@pytest.mark.parametrize("compiles", HOWS)
def test_pieces_are_the_whole_to_the_bit(compiles: bool) -> None:
    chunk = Chunk(going, body, start(), limits(1), compiles=compiles)
    for pieces, whole in zip(run(chunk, 0, 1, 7, 7, 25), run(chunk, 25), strict=True):
        assert torch.equal(pieces, whole)


def test_state_lies_in_few_tensors() -> None:
    chunk = Chunk(going, body, start(), limits(1), compiles=False)
    packed = chunk.pack(start())
    assert len(packed) == 5  # one for each part of the state
    chunk.change(packed, lambda state: state._replace(step=torch.tensor(4), well=torch.tensor(False)))
    assert int(chunk.unpack(packed).step) == 4 and not bool(chunk.unpack(packed).well)


def test_inner_loop_goes_on_in_the_tensors_of_the_outer() -> None:
    def outer(state: Any, last: Tensor) -> Any:
        count, (point, square) = state
        point, square = while_loop(
            lambda s, f: s[0].sum() < f, lambda s, f: (s[0] + 1, s[0] ** 2), (point, square), last
        )
        return count + 1, (point - 3, square)

    def two(state: Any, last: Tensor) -> Tensor:
        return state[0] < 2

    state = torch.tensor(0), (torch.zeros(3), torch.zeros(3))
    chunk = Chunk(two, outer, state, torch.tensor(9.0), compiles=False)
    packed = chunk.pack(state)
    chunk(packed, chunk.pack_fixed(torch.tensor(9.0)))
    count, (point, square) = chunk.unpack(packed)
    assert int(count) == 2 and point.tolist() == [0.0] * 3 and square.tolist() == [4.0] * 3


def test_what_cannot_be_traced_runs_as_python() -> None:
    def doubled(x: Tensor, last: Tensor) -> Tensor:
        return 2 * x if float(x) > 0 else x + 1

    with pytest.warns(LoweringWarning, match="A loop could not be traced and runs as Python"):
        chunk = Chunk(lambda x, last: x < last, doubled, torch.tensor(0.0), torch.tensor(1.0))
    state = chunk.pack(torch.tensor(0.0))
    chunk(state, chunk.pack_fixed(torch.tensor(10.0)))
    assert chunk.how == "eager" and float(chunk.unpack(state)) == 16.0


def test_equal_keys_share_code() -> None:
    first = Chunk(going, body, start(), limits(1), key="shared", compiles=False)
    second = Chunk(going, body, start(), limits(1), key="shared", compiles=False)
    assert first._function is second._function
    check(run(second, 5), by_hand(5))


@pytest.mark.parametrize("first", [0, 3])
def test_a_row_is_written_where_the_number_was_before_the_step(first: int) -> None:
    """The first step from 3, which would write behind the last row, is never taken."""
    rows = torch.zeros(3, 2)

    def write(state: tuple[Tensor, Tensor], fixed: Tensor) -> tuple[Tensor, Tensor]:
        return state[0] + 1, state[1].index_put((state[0][None],), fixed[None])

    state = torch.tensor(first), rows
    chunk = Chunk(lambda s, f: s[0] < 3, write, state, torch.ones(2), compiles="cpp")
    assert chunk.how == "compiled"
    for begin, expected in ((3, 0.0), (1, 4.0)):
        packed = chunk.pack((torch.tensor(begin), rows.clone()))
        chunk(packed, chunk.pack_fixed(torch.ones(2)))
        assert float(chunk.unpack(packed)[1].sum()) == expected


@pytest.mark.parametrize("compiles", [True, False])
@pytest.mark.parametrize("is_seen", [False, True])
def test_a_row_of_what_a_step_overwrites_is_written_before(is_seen: bool, compiles: bool) -> None:
    """In place, unless what is written back before it takes an entry of the rows as they were."""

    def body(state: Any, fixed: Any) -> Any:
        step, point, matrix, rows = state
        seen = rows[1:4] if is_seen else matrix + 1
        return step + 1, torch.sin(point) + 1, seen, rows.index_put((step.view(1),), point[None])

    begin = torch.tensor(0), torch.linspace(-1, 1, 6), torch.ones(3, 6), torch.full((5, 6), 2.0)
    chunk = Chunk(lambda state, last: state[0] < last, body, begin, torch.tensor(4), compiles=compiles)
    packed = chunk.pack(begin)
    chunk(packed, chunk.pack_fixed(torch.tensor(4)))
    expected: Any = begin
    for _ in range(4):
        expected = body(expected, None)
    torch.testing.assert_close(chunk.unpack(packed), expected)
    if not compiles:
        graph: Any = chunk._function
        nodes = [node for each in graph.modules() if isinstance(each, GraphModule) for node in each.graph.nodes]
        assert any(node.target is torch.ops.aten.index_put_.default for node in nodes) != is_seen


def test_a_loop_leaves_alone_what_it_begins_from() -> None:
    """A matrix that was both where a loop began and what it took for constant changed under it, and so did the caller's."""

    def squared(x: Tensor, matrix: Tensor) -> Tensor:
        begin = (torch.zeros_like(x), matrix)
        count, product = while_loop(lambda s, f: s[0] < 3, lambda s, f: (s[0] + 1, s[1] @ f), begin, matrix)
        return count + product.sum() + matrix.sum()

    def inside(state: tuple[Tensor, Tensor], fixed: Tensor) -> tuple[Tensor, Tensor]:
        return state[0] + 1, squared(state[0] * 0, fixed) + state[1]

    matrix = torch.tensor([[0.5, 0.25], [-0.5, 0.75]])
    expected = 3 + torch.linalg.matrix_power(matrix, 4).sum() + matrix.sum()
    torch.testing.assert_close(squared(torch.tensor(0.0), matrix), expected)
    first = (torch.tensor(0.0), torch.tensor(0.0))
    for compiles in (True, False):
        chunk = Chunk(lambda s, f: s[0] < 2, inside, first, matrix, compiles=compiles)
        state = chunk.pack(first)
        chunk(state, chunk.pack_fixed(matrix))
        torch.testing.assert_close(chunk.unpack(state)[1], 2 * expected)
        assert torch.equal(matrix, torch.tensor([[0.5, 0.25], [-0.5, 0.75]]))


@pytest.mark.parametrize("compiles", [True, False])
def test_a_chunk_leaves_alone_what_was_packed(compiles: bool) -> None:
    """A long vector was packed as it was, and the loop wrote into the caller's."""
    begin = torch.arange(5000.0)
    chunk = Chunk(lambda s, f: s.sum() < f, lambda s, f: 2 * s + 1, begin, torch.tensor(1.0), compiles=compiles)
    state = chunk.pack(begin)
    chunk(state, chunk.pack_fixed(2.0 * begin.sum()))
    assert float(chunk.unpack(state)[1]) == 3.0 and torch.equal(begin, torch.arange(5000.0))
