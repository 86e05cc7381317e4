"""Operations on what a loop does not change are computed once, in front of it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine.loops import Chunk, while_loop

STEPS, INNER = 4, 3


def depths(graph: GraphModule, depth: int = 0) -> dict[str, set[int]]:
    """Return in how many loops each operation of a graph stands."""
    found: dict[str, set[int]] = {}
    for node in graph.graph.nodes:
        if node.op == "call_function":
            found.setdefault(str(node.target), set()).add(depth)
        inside = (
            depths(getattr(graph, node.target), depth + 1) if node.op == "get_attr" and "loop" in node.target else {}
        )
        for name, levels in inside.items():
            found.setdefault(name, set()).update(levels)
    return found


def going(state: tuple[Tensor, Tensor], fixed: tuple[Tensor, ...]) -> Tensor:
    return state[0] < fixed[0]


def body(state: tuple[Tensor, Tensor], fixed: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Take inner steps with two functions of the data, one of a number of the outer loop and one of their own state."""
    count, point = state
    _, counts, scale = fixed
    outer = point.sum()

    def step(inner: tuple[Tensor, Tensor], held: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        at, x = inner
        shift, data, width = held
        factorials = torch.lgamma(data + 1)
        terms = factorials / torch.log(width) + torch.digamma(1 + shift.abs())
        return at + 1, torch.sin(x + factorials) - 0.01 * terms  # what is moved is made of what is moved

    first = torch.zeros_like(count), point
    _, point = while_loop(lambda s, f: s[0] < INNER, step, first, (outer, counts, scale))
    return count + 1, point


def by_hand(counts: Tensor, scale: Tensor) -> Tensor:
    point = torch.linspace(-1, 1, 6, dtype=torch.float64)
    for _ in range(STEPS):
        outer = point.sum()
        for _ in range(INNER):
            factorials = torch.lgamma(counts + 1)
            terms = factorials / torch.log(scale) + torch.digamma(1 + outer.abs())
            point = torch.sin(point + factorials) - 0.01 * terms
    return point


def chunk_of(compiles: bool) -> tuple[Chunk, Any, Any]:
    state = torch.tensor(0), torch.linspace(-1, 1, 6, dtype=torch.float64)
    fixed = torch.tensor(STEPS), torch.arange(6, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
    return Chunk(going, body, state, fixed, compiles=compiles), state, fixed


@pytest.mark.parametrize("compiles", [False, True])
def test_the_numbers_stay_the_same(compiles: bool) -> None:
    chunk, state, fixed = chunk_of(compiles)
    assert chunk.how == ("compiled" if compiles else "traced")
    packed = chunk.pack(state)
    chunk(packed, chunk.pack_fixed(fixed))
    torch.testing.assert_close(chunk.unpack(packed)[1], by_hand(*fixed[1:]), rtol=1e-13, atol=1e-13)


def test_functions_of_the_data_leave_all_loops_and_those_of_the_outer_loop_the_inner_one() -> None:
    found = depths(chunk_of(compiles=False)[0]._function)
    assert found["aten.lgamma.default"] == found["aten.log.default"] == {0}
    assert found["aten.digamma.default"] == {1} and found["aten.sin.default"] == {2}


def test_other_data_are_not_those_of_the_first_run() -> None:
    chunk, state, fixed = chunk_of(compiles=True)
    other = fixed[0], fixed[1] + 2, fixed[2] * 2
    for each in (fixed, other):
        packed = chunk.pack(state)
        chunk(packed, chunk.pack_fixed(each))
        torch.testing.assert_close(chunk.unpack(packed)[1], by_hand(*each[1:]), rtol=1e-13, atol=1e-13)


def test_random_numbers_and_what_grows_stay_inside() -> None:
    def drawn(state: tuple[Tensor, Tensor], fixed: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        count, total = state
        table = torch.exp(fixed[1]) * fixed[1].expand(50, 6)
        return count + 1, total + (table * total.cos()).mean(0) + torch.bernoulli(fixed[1].sigmoid())

    state = torch.tensor(0), torch.zeros(6, dtype=torch.float64)
    fixed = torch.tensor(STEPS), torch.linspace(-1, 1, 6, dtype=torch.float64)
    found = depths(Chunk(going, drawn, state, fixed, compiles=False)._function)
    assert found["aten.exp.default"] == found["aten.sigmoid.default"] == {0}
    assert found["aten.bernoulli.default"] == found["aten.mul.Tensor"] == {1}
