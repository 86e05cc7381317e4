"""Loops in native code, in graphs and in Python: the same numbers, in whatever pieces they are run."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from bnnzoo.engine.loops import Stretch, while_loop
from bnnzoo.engine.lowered import LoweringWarning


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


def run(stretch: Stretch, *ends: int) -> State:
    state = stretch.pack(start())
    for end in ends:
        stretch(state, stretch.pack_fixed(limits(end)))
    return stretch.unpack(state)


HOWS = [False, pytest.param(True, marks=pytest.mark.slow)]


def test_loop_in_python() -> None:
    check(while_loop(going, body, start(), limits(25)), by_hand(25))


@pytest.mark.parametrize("compiles", HOWS)
def test_stretch(compiles: bool) -> None:
    stretch = Stretch(going, body, start(), limits(1), compiles=compiles)
    assert stretch.how == ("compiled" if compiles else "traced")
    check(run(stretch, 25), by_hand(25))


@pytest.mark.parametrize("compiles", HOWS)
def test_pieces_are_the_whole_to_the_bit(compiles: bool) -> None:
    stretch = Stretch(going, body, start(), limits(1), compiles=compiles)
    for pieces, whole in zip(run(stretch, 0, 1, 7, 7, 25), run(stretch, 25), strict=True):
        assert torch.equal(pieces, whole)


def test_state_lies_in_few_tensors() -> None:
    stretch = Stretch(going, body, start(), limits(1), compiles=False)
    packed = stretch.pack(start())
    assert len(packed) == 5  # one for each part of the state
    stretch.change(packed, lambda state: state._replace(step=torch.tensor(4), well=torch.tensor(False)))
    assert int(stretch.unpack(packed).step) == 4 and not bool(stretch.unpack(packed).well)


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
    stretch = Stretch(two, outer, state, torch.tensor(9.0), compiles=False)
    packed = stretch.pack(state)
    stretch(packed, stretch.pack_fixed(torch.tensor(9.0)))
    count, (point, square) = stretch.unpack(packed)
    assert int(count) == 2 and point.tolist() == [0.0] * 3 and square.tolist() == [4.0] * 3


def test_what_cannot_be_traced_runs_as_python() -> None:
    def doubled(x: Tensor, last: Tensor) -> Tensor:
        return 2 * x if float(x) > 0 else x + 1

    with pytest.warns(LoweringWarning, match="A loop could not be traced and runs as Python"):
        stretch = Stretch(lambda x, last: x < last, doubled, torch.tensor(0.0), torch.tensor(1.0))
    state = stretch.pack(torch.tensor(0.0))
    stretch(state, stretch.pack_fixed(torch.tensor(10.0)))
    assert stretch.how == "eager" and float(stretch.unpack(state)) == 16.0


def test_equal_keys_share_code() -> None:
    first = Stretch(going, body, start(), limits(1), key="shared", compiles=False)
    second = Stretch(going, body, start(), limits(1), key="shared", compiles=False)
    assert first._function is second._function
    check(run(second, 5), by_hand(5))


@pytest.mark.parametrize("first", [0, 3])
def test_a_row_is_written_where_the_number_was_before_the_step(first: int) -> None:
    """The first step from 3, which would write behind the last row, is never taken."""
    rows = torch.zeros(3, 2)

    def write(state: tuple[Tensor, Tensor], fixed: Tensor) -> tuple[Tensor, Tensor]:
        return state[0] + 1, state[1].index_put((state[0][None],), fixed[None])

    state = torch.tensor(first), rows
    stretch = Stretch(lambda s, f: s[0] < 3, write, state, torch.ones(2), compiles="cpp")
    assert stretch.how == "compiled"
    for begin, expected in ((3, 0.0), (1, 4.0)):
        packed = stretch.pack((torch.tensor(begin), rows.clone()))
        stretch(packed, stretch.pack_fixed(torch.ones(2)))
        assert float(stretch.unpack(packed)[1].sum()) == expected
