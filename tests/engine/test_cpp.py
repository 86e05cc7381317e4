"""Graphs written in C++ give what torch gives, operation by operation, and what they cannot hold is left to torch's compiler."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bnnzoo.engine import loops
from bnnzoo.engine.cpp import building
from bnnzoo.engine.cpp.building import built, compile_in_cpp, function_of
from bnnzoo.engine.cpp.nests import CUT_STEPS, Nest, Statement, Statements
from bnnzoo.engine.cpp.translate import for_native, source_of
from bnnzoo.engine.cpp.values import Access, Affine, Buffer, Cannot
from bnnzoo.engine.graphs import trace_loops
from bnnzoo.engine.loops import Chunk

ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12}


def inputs(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return [normal(40, 3), normal(3, 5), normal(40), torch.tensor([2, 0, -1, 1]), normal(40, 30)]


type Function = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

FUNCTIONS: dict[str, Function] = {
    "products": lambda x, w, y, k, z: torch.tanh(x @ w) @ w.T @ w,
    "product of the long dimension": lambda x, w, y, k, z: x.T @ (torch.sin(x @ w)),
    "products with few rows": lambda x, w, y, k, z: (
        (z[0, :4].outer(z[:, 1]) @ z.sin()).sum(0) * (torch.cos(z).T[:3] @ z).sum()
        + (z.T @ torch.tanh(z @ z[:30, :2]))[:, 1]
    ),
    "product of square matrices": lambda x, w, y, k, z: z.T @ z @ z.T,
    "products and what is added": lambda x, w, y, k, z: (
        torch.addmm(w[0], x, w).sin()
        + torch.addmm(y[:, None], z, z[:30, :5])
        + torch.addmm(x.T[:, :1], x.T, z[:, :3])[0, 0]
    ),
    "row sums": lambda x, w, y, k, z: torch.exp(x).sum(1) * y,
    "column sums": lambda x, w, y, k, z: (torch.exp(z) * y[:, None]).sum(0),
    "sum of everything": lambda x, w, y, k, z: z.square().sum() + y.abs().sum(),
    "means": lambda x, w, y, k, z: (z.mean(1) * y + z.T.mean() * 2)[:, None] - z.mean(0, keepdim=True) + y[k].mean(),
    "largest": lambda x, w, y, k, z: torch.logsumexp(z, 1) + z.amax(0).amin(),
    "shapes": lambda x, w, y, k, z: torch.cat([z.T.reshape(-1)[5:100:3], x[::2, 1], (x.T[None] + 1).reshape(-1)]),
    "shape of an expression": lambda x, w, y, k, z: (2 * z).view(20, 60).T.sum(1) + (3 * x).reshape(-1)[7:67],
    "rows by number": lambda x, w, y, k, z: (2 * x)[k] + z[k, :3],
    "entries by number": lambda x, w, y, k, z: x.gather(1, (k % 3)[:, None]).square(),
    "rows added by number": lambda x, w, y, k, z: torch.zeros_like(x).index_put((k % 2,), x[:4], accumulate=True),
    "comparisons": lambda x, w, y, k, z: torch.where((x > 0) & ~(x > 1) | x.isnan(), x, -1.0) + (y[:, None] <= 0),
    "whole numbers": lambda x, w, y, k, z: ((k * -7046029254386353131) ^ (k >> 3)) % 1000 + torch.arange(4) * k,
    "functions": lambda x, w, y, k, z: (
        torch.log1p(x.square()) + x.sigmoid() + x.clamp(-0.5, 0.3) + x.cos() + x.abs().sqrt() + x**3 + torch.erf(x) / 2
    ),
    "infinite": lambda x, w, y, k, z: (
        torch.logaddexp(torch.full_like(y, -math.inf), y) + torch.exp(y * 1e30).clamp(max=1)
    ),
    "old values": lambda x, w, y, k, z: torch.stack([y + 1, y * 2]) + y.new_full((), 3.0),
}


def native(function: Function, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return what a function gives in C++, and what it gives in torch."""
    tensors = inputs(dtype)
    expected = function(*tensors)
    out = torch.zeros_like(expected)
    graph = trace_loops(lambda *t: (t[0].copy_(function(*t[1:])),), [out, *tensors], for_native())
    compiled = compile_in_cpp(graph)
    assert compiled is not None, source_of(graph)
    compiled.call(out, *tensors)
    return out, expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gives_what_torch_gives(name: str, dtype: torch.dtype) -> None:
    found, expected = native(FUNCTIONS[name], dtype)
    torch.testing.assert_close(found, expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponential(dtype: torch.dtype) -> None:
    """Two units in the last place, and the right thing beyond the range, at infinity and where there is no number."""
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 89.0, -104.0, 710.0, -746.0, 1000.0, -1000.0])
    points = torch.cat([special.to(dtype), torch.linspace(-85, 85, 10_001, dtype=dtype)])
    out = torch.zeros_like(points)
    graph = trace_loops(lambda out, x: (out.copy_(x.exp()),), [out, points], for_native())
    compiled = compile_in_cpp(graph)
    assert compiled is not None
    compiled.call(out, points)
    precise = points.double().exp()
    finite = precise.to(dtype).isfinite() & (precise > torch.finfo(dtype).tiny)
    error = (out.double() - precise).abs()[finite] / precise[finite]
    assert float(error.max()) < 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(out[~finite], precise.to(dtype)[~finite], equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hyperbolic_tangent(dtype: torch.dtype) -> None:
    """To an absolute rounding error, one at infinity, and no number where there is none."""
    special = torch.tensor([0.0, math.inf, -math.inf, math.nan, 1e30, -1e30], dtype=dtype)
    points = torch.cat([special, torch.linspace(-30, 30, 10_001, dtype=dtype)])
    out = torch.zeros_like(points)
    compiled = compile_in_cpp(trace_loops(lambda out, x: (out.copy_(x.tanh()),), [out, points], for_native()))
    assert compiled is not None
    compiled.call(out, points)
    expected = points.double().tanh().to(dtype)
    torch.testing.assert_close(out, expected, rtol=0, atol=2 * torch.finfo(dtype).eps, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("terms", [17, 18, 19, 20, 33])
def test_products_of_matrices_none_of_which_is_narrow(terms: int, dtype: torch.dtype) -> None:
    """Terms are added up several at a time, and those that are left over."""
    generator = torch.Generator().manual_seed(terms)
    left, right = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((23, terms), (terms, 31)))
    out = torch.zeros(23, 31, dtype=dtype)
    graph = trace_loops(lambda *t: (t[0].copy_(t[1] @ t[2]),), [out, left, right], for_native())
    compile_in_cpp(graph).call(out, left, right)
    torch.testing.assert_close(out, left @ right, rtol=10 * ROUNDING[dtype], atol=10 * ROUNDING[dtype])


LAYERS: dict[str, Function] = {
    "a layer": lambda x, w, y, k, z: torch.tanh(w @ x + y),
    "its sum, and what it is of": lambda x, w, y, k, z: (torch.sigmoid(w @ x) * (w @ x)).sum(0),
    "sums over rows": lambda x, w, y, k, z: (torch.exp(-((w @ x) ** 2)) * y).sum(1),
    "two functions": lambda x, w, y, k, z: torch.log1p(torch.exp(w @ x)) + torch.tanh((w @ x) * 2) * y,
    "one after the other": lambda x, w, y, k, z: torch.tanh(torch.exp((w @ x).sin() * 0.1 - y**2 + 3 * y)),
}
"""Functions of sums of ten terms."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_rows", [3, 31, 32, 33, 600, 1024, 1025, 2500])
@pytest.mark.parametrize("name", LAYERS)
def test_functions_of_long_sums_have_loops_of_their_own(name: str, num_rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    x, w, y = (torch.randn(*shape, generator=generator).to(dtype) / 3 for shape in ((10, num_rows), (5, 10), (5, 1)))
    function = LAYERS[name]
    expected = function(x, w, y, x, x)
    out = torch.zeros_like(expected)
    graph = trace_loops(lambda *t: (t[0].copy_(function(*t[1:], x, x)),), [out, x, w, y], for_native())
    source = source_of(graph)
    assert ("row_v" in source) == (num_rows >= CUT_STEPS)
    compile_in_cpp(graph).call(out, x, w, y)
    torch.testing.assert_close(out, expected, rtol=10 * ROUNDING[dtype], atol=10 * ROUNDING[dtype])


def test_what_is_used_behind_a_cut() -> None:
    """It waits in a row, or is loaded again unless the loop writes to where it lies; with too much of it there is no cut."""
    place = Affine({"i0": 1})

    def nest(num_waiting: int) -> Nest:
        one = Nest((100,))
        kept, other = (Buffer(name, torch.float64, 100) for name in ("kept", "other"))
        loaded, old = one.body.load(other, place), one.body.load(kept, place)
        sums = [one.body.let(torch.float64, f"{loaded} + {number}") for number in range(num_waiting - 1)]
        one.body.store(kept, place, f"{old} * {loaded}")
        one.body.cut()
        one.body.store(kept, place, " + ".join([f"exp_<double>({loaded})", old, *sums]))
        return one

    lines = nest(2).render()
    behind = lines[max(k for k, line in enumerate(lines) if line.startswith("for")) :]
    assert sum(line.startswith("#pragma") for line in lines) == 2
    assert "const double v0 = other[i0];" in behind and "const double v1 = row_v1[i0];" in behind
    assert "const double v1 = kept[i0];" not in behind
    assert sum(line.startswith("#pragma") for line in nest(4).render()) == 1


ADDED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_put": lambda start, number, values: start.index_put((number,), values, accumulate=True),
    "scatter_add": lambda start, number, values: start.scatter_add(0, number % len(start), values),
}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("length", "size"), [(23, 5), (24, 5), (40, 10), (19, 5), (4, 1), (39, 10)])
def test_entries_added_by_number_do_not_wait_for_each_other(
    length: int, size: int, dtype: torch.dtype, name: str
) -> None:
    """Four sums where there are four entries to a place, whose number may be counted from the end; else one."""
    generator = torch.Generator().manual_seed(length)
    number = torch.randint(-size, size, (length,), generator=generator)
    values = torch.randint(-99, 99, (length,), generator=generator).to(dtype)
    start, out = torch.arange(float(size), dtype=dtype), torch.zeros(size, dtype=dtype)

    def added(out: Tensor, start: Tensor, number: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        return (out.copy_(ADDED[name](2 * start, number, 3 * values)),)

    graph = trace_loops(added, [out, start, number, values], for_native())
    assert ("i1 < 4" in source_of(graph)) == (length >= 4 * size)
    compile_in_cpp(graph).call(out, start, number, values)
    assert out.tolist() == ADDED[name](2 * start, number, 3 * values).tolist()


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, "int32_t"), (torch.float64, "int64_t")])
def test_numbers_of_rows_are_as_wide_as_what_is_read(dtype: torch.dtype, kind: str) -> None:
    """The compiler takes entries of a table many at a time if there is one number to a lane."""
    x, number, out = torch.arange(7.0, dtype=dtype), torch.tensor([3, -1, 0]), torch.zeros(3, dtype=dtype)
    graph = trace_loops(lambda out, x, k: (out.copy_(x[k]),), [out, x, number], for_native())
    assert any(line.startswith(f"const {kind}") and "+ 7" in line for line in source_of(graph).splitlines())
    compile_in_cpp(graph).call(out, x, number)
    assert out.tolist() == [3.0, 6.0, 0.0]


def test_what_is_overwritten_is_read_before() -> None:
    def swapped(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        total, shifted = a + b, a.flip(0) if False else torch.cat([a[1:], a[:1]])
        before = 2 * a
        a.copy_(shifted * 2)
        b.copy_(total + before)
        return (a,)

    a, b = torch.arange(6.0), torch.ones(6)
    compiled = compile_in_cpp(trace_loops(swapped, [a, b], for_native()))
    assert compiled is not None
    compiled.call(a, b)
    assert a.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 0.0]
    assert b.tolist() == [1.0, 4.0, 7.0, 10.0, 13.0, 16.0]


def test_expressions_may_lie_in_each_other_however_deep() -> None:
    """A solver's steps, written out, are operations of operations of a thousand others."""

    def deep(x: Tensor, w: Tensor, y: Tensor, k: Tensor, z: Tensor) -> Tensor:
        for i in range(1000):
            x = x + y[i % 40] if i % 2 else 0.999 * x
        return x

    out, expected = native(deep, torch.float64)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_loops_join_the_last_one_that_nothing_keeps_them_from() -> None:
    """Against all statements in turn, from the last one back: only those that touch the same buffers are asked."""
    generator = random.Random(0)

    def accesses(most: int) -> list[Access]:
        places = ["", "i0", "i0 + 1"]
        lows = [generator.randrange(6) for _ in range(generator.randint(0, most))]
        return [Access(generator.choice("abcd"), low, low + 3, generator.choice(places)) for low in lows]

    def meet(one: Access, other: Access) -> bool:
        return one.name == other.name and one.low < other.high and other.low < one.high

    def expected(so_far: list[Statement | Nest], sizes: tuple[int, ...], uses: Any, defines: Any) -> int | None:
        for place, each in reversed(list(enumerate(so_far))):
            two = [(each.defines, uses), (each.uses, defines), (each.defines, defines)]
            pairs = [(a, b) for left, right in two for a in left for b in right if meet(a, b)]
            alike = isinstance(each, Nest) and each.vectorises and each.sizes == sizes
            if alike and all(a.place and a.place == b.place for a, b in pairs):
                return place
            if pairs:
                return None
        return None

    joined = 0
    for _ in range(100):
        statements, so_far = Statements(), list[Statement | Nest]()
        for _ in range(30):
            uses, defines = accesses(2), accesses(1)
            if generator.random() < 0.4:
                so_far.append(Statement([], uses, defines))
                statements.add(so_far[-1])
            else:
                sizes = generator.choice([(2,), (3,)])
                place = expected(so_far, sizes, uses, defines)
                nest = statements.nest_for(sizes, uses, defines)
                assert place is None or nest is so_far[place]
                assert place is not None or all(nest is not each for each in so_far)
                so_far += [nest] if place is None else []
                joined += place is not None
    assert joined > 200


def test_unknown_operation_is_left_to_torchs_compiler() -> None:
    matrix = torch.eye(3)
    graph = trace_loops(lambda out, a: (out.copy_(torch.matrix_exp(a)),), [matrix, matrix.clone()], for_native())
    with pytest.raises(Cannot, match="matrix_exp"):
        source_of(graph)
    with pytest.raises(Cannot, match="matrix_exp"):
        compile_in_cpp(graph)


def test_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = 'extern "C" void bnnzoo_run(void** arguments, void*, void*) { ((double*)arguments[0])[0] = 7; }'
    library = built(source)
    assert library.parent == tmp_path / "bnnzoo" / "native"
    monkeypatch.setattr(building, "_compile", lambda *args: pytest.fail("compiled again"))
    assert built(source) == library
    tensor = torch.zeros(1, dtype=torch.float64)
    function_of(library)(tensor)
    assert float(tensor) == 7


def test_another_process_finds_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    states = torch.tensor(0.0), torch.tensor(5.0)

    def doubled(key: object) -> Chunk:
        return Chunk(lambda x, last: x < last, lambda x, last: 2 * x + 1, *states, key=key)

    assert doubled("doubling").how == "compiled"
    loops.COMPILED.clear()  # as in another process
    monkeypatch.setattr(loops, "trace_loops", lambda *args: pytest.fail("traced again"))
    again = doubled("doubling")
    state = again.pack(torch.tensor(0.0))
    again(state, again.pack_fixed(torch.tensor(100.0)))
    assert again.how == "compiled" and float(again.unpack(state)) == 127.0
    monkeypatch.setattr(building, "_sources", lambda: "another version of the package")
    loops.COMPILED.clear()
    with pytest.raises(pytest.fail.Exception, match="traced again"):
        doubled("doubling")


def test_code_that_does_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    library = built('extern "C" void bnnzoo_run(void** arguments, void*, void*) { ((float*)arguments[0])[0] = 7; }')
    wrong = building.Compiled(function_of(library), library)
    monkeypatch.setattr(loops, "compile_in_cpp", lambda graph: wrong)
    monkeypatch.setattr(loops, "compile_loops", lambda graph, log: None)
    states = torch.tensor(3.0), torch.tensor(5.0)
    chunk = Chunk(lambda x, last: x < last, lambda x, last: 2 * x + 1, *states)
    assert chunk.how == "traced" and chunk.log.report().engine == "graph"
    assert chunk.log.report().reasons == (
        "native code: leaf 0 of shape [] is off by 4.0e+00, and has moved by 4.0e+00",
    )


def test_what_is_known_by_its_address_is_not_found_in_another_process() -> None:
    assert loops._name(object(), []) is None and loops._name(None, []) is None
    assert loops._name(("kernel", 0.8), [torch.zeros(2)]) == loops._name(("kernel", 0.8), [torch.ones(2)])


def test_places_add_up() -> None:
    place = Affine({"i1": 1}).scaled(3).plus(Affine({"i0": 2}, 4))
    assert str(place) == "2 * i0 + 3 * i1 + 4" and str(place.plus(place.scaled(-1))) == "0"


def test_library_product() -> None:
    """Large products are those of torch's own library, whichever way the matrices lie."""
    left, right = torch.randn(70, 90), torch.randn(80, 90)

    def twice(state: Any, fixed: Any) -> Any:
        return state[0] + 1, fixed[0] @ fixed[1].T + state[1].T.T

    state = torch.tensor(0), torch.zeros(70, 80)
    chunk = Chunk(lambda s, f: s[0] < 2, twice, state, (left, right))
    packed, fixed = chunk.pack(state), chunk.pack_fixed((left, right))
    chunk(packed, fixed)
    torch.testing.assert_close(chunk.unpack(packed)[1], 2 * left @ right.T)
