"""Every operation of the C++ generator, at numbers, infinities and NaN, gives what torch gives.

Graphs are compiled directly: a loop whose C++ goes wrong falls back on torch's compiler, and nobody sees it.
"""

import functools
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.special import polygamma
from torch import Tensor

from bnnzoo.engine.cpp.building import built, function_of
from bnnzoo.engine.cpp.decomposed import DECOMPOSED
from bnnzoo.engine.cpp.products import GEMM_FROM
from bnnzoo.engine.cpp.translate import HANDLERS, for_native, source_of
from bnnzoo.engine.graphs import trace, trace_loops
from bnnzoo.engine.loops import while_loop
from bnnzoo.engine.runs import NativeRuns

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


class Inputs(NamedTuple):
    """Numbers ``[6, 4]`` of every kind, others to meet them, positive ones; whole numbers, rows, truth values."""

    x: Tensor
    y: Tensor
    p: Tensor
    i: Tensor
    k: Tensor
    b: Tensor
    w: Tensor


def inputs(dtype: torch.dtype) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    special = [[NAN, INF, -INF, 0.0], [-0.0, 1.0, -1.0, 2.5], [0.5, -2.5, 3.0, -3.0], [NAN, 1e-3, 7.0, -7.0]]
    x = torch.cat([torch.tensor(special), torch.randn(2, 4, generator=generator)]).to(dtype)
    y = torch.tensor([1.0, NAN, 0.0, -0.7, INF, 2.0, -INF, 0.3, -2.5]).to(dtype)
    p = torch.rand(6, 4, generator=generator, dtype=torch.float64).to(dtype) + 0.1
    i = torch.tensor([[7, -7, 0, 3], [-1, 2, 5, -4]]).repeat(3, 1)
    w = torch.randn(100, 120, generator=generator, dtype=torch.float64).to(dtype)
    b = torch.tensor([[True], [False]] * 3)
    return Inputs(x, y.repeat(3)[:24].view(6, 4), p, i, torch.tensor([2, 0, -1, 1]), b, w)


type Case = Callable[[Inputs], Tensor]

NUMBERS: dict[str, Case] = {
    **{
        name: lambda t, f=getattr(torch, name): f(t.x)  # type: ignore[misc]
        for name in (
            *("exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "sigmoid", "erf"),
            *("erfc", "digamma", "asin", "acos", "asinh", "acosh", "atanh", "exp2", "round", "neg", "reciprocal", "sqrt"),
            *("rsqrt", "abs", "sign", "floor", "ceil", "trunc", "relu", "isnan", "isinf"),
        )
    },
    "digamma of numbers of all sizes": lambda t: torch.digamma(torch.cat([t.p, t.p * 1e3, t.p * 1e-4, -3.3 * t.p])),
    "arctangent of two": lambda t: torch.atan2(t.x, t.y),
    "logarithms of the smallest numbers": lambda t: torch.log(t.p * torch.finfo(t.p.dtype).tiny * 2**-9),
    "logarithms of the largest numbers": lambda t: torch.log1p(t.p * (torch.finfo(t.p.dtype).max / 2)),
    "lgamma of numbers of all sizes": lambda t: torch.lgamma(torch.cat([t.p * 1e3, t.p * 1e-4, 7.5 + t.p])),
    "lgamma": lambda t: torch.lgamma(t.p) + torch.lgamma(-t.p),
    **{f"power {each}": lambda t, e=each: t.x**e for each in (2, 1, 0, 3, 0.5, -1, -2, -0.5, 1.7, -3)},  # type: ignore[misc]
    "power of tensors": lambda t: t.p**t.y,
    "power of a number": lambda t: 0.3**t.x,
    "sum": lambda t: t.x + t.y,
    "sum with a number": lambda t: aten.add.Scalar(t.x, 2.5),
    "sum with a factor": lambda t: torch.add(t.x, t.y, alpha=1),
    "difference": lambda t: t.x - t.y,
    "difference with a number": lambda t: aten.sub.Scalar(t.x, 2.5),
    "difference from a number": lambda t: (2.5 - t.x) + torch.rsub(t.p, 0.3),
    "product": lambda t: t.x * t.y,
    "product with a number": lambda t: aten.mul.Scalar(t.x, -1.5),
    "quotient": lambda t: t.x / t.y,
    "quotient by a number": lambda t: aten.div.Scalar(t.x, -1.5),
    "quotient of a number": lambda t: 2.0 / t.x,
    "maximum": lambda t: torch.maximum(t.x, t.y),
    "maximum, turned": lambda t: torch.maximum(t.y, t.x),
    "minimum": lambda t: torch.minimum(t.x, t.y),
    "minimum, turned": lambda t: torch.minimum(t.y, t.x),
    "clamp": lambda t: t.x.clamp(-0.5, 1.5),
    "clamp from below": lambda t: t.x.clamp(min=0.5),
    "clamp from above": lambda t: t.x.clamp(max=0.5),
    "remainder": lambda t: t.x % 2.0 + t.p % -0.3,
    "remainder of tensors": lambda t: torch.remainder(t.x, t.y),
    "where": lambda t: torch.where(t.b, t.x, t.y) + torch.where(t.b, 1.0, t.p),
    "copies": lambda t: torch.stack([t.x.clone(), aten.alias(t.x), t.x.detach()]).sum(0),
    "other types": lambda t: t.x.double() * 2 + t.i.float() + t.b.double() + t.p.to(torch.int64),
    "other types, as torch's own functions write it": lambda t: torch.ops.prims.convert_element_type(t.i, t.x.dtype),
    "filled": lambda t: t.p * torch.full((4,), 2.0) + torch.ones(4) + torch.zeros(4),
    "empty": lambda t: torch.empty(6, 4).copy_(t.p),
    "counted": lambda t: torch.arange(3, 11, 2) * t.i,
}  # fmt: skip

CHOICES: dict[str, Case] = {
    **{
        f"{name} {what}": lambda t, f=getattr(torch, name), g=other: f(t.x, g(t))  # type: ignore[misc]
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for what, other in {"a number": lambda t: 1.0, "tensors": lambda t: t.y, "whole numbers": lambda t: t.i}.items()
    },
    "not": lambda t: torch.logical_not(t.x),
    "and": lambda t: torch.logical_and(t.x, t.y),
    "or": lambda t: torch.logical_or(t.x, t.y),
    "either": lambda t: torch.logical_xor(t.x, t.y),
    "whole numbers": lambda t: t.i * 3 - (5 - t.i) + -t.i + t.i.abs() + t.i.sign() + t.i**2,
    "whole numbers in bounds": lambda t: torch.maximum(t.i, -t.i) + torch.minimum(t.i, 2 - t.i) + t.i.clamp(-1, 4) + t.i.relu(),
    "remainders of whole numbers": lambda t: t.i % 3 + t.i % -4 + torch.remainder(t.i, t.i.abs() + 2),
    "quotients of whole numbers": lambda t: t.i / 3,
    "bits": lambda t: (t.i & 6) + (t.i | 1) + (t.i ^ 5) + (t.i >> 1) + (t.i << 2) + ~t.i,
    "bits of tensors": lambda t: (t.i & t.k) + (t.i | t.k) + (t.i ^ t.k) + (t.i >> t.k.abs()) + (t.i << t.k.abs()),
    "truth values": lambda t: (t.b & (t.x > 0)) | (~t.b ^ (t.y > 0)),
    "small whole numbers": lambda t: t.i.to(torch.int32) * 2 + t.i.to(torch.int32) % 5,
}  # fmt: skip

REDUCED: dict[str, Case] = {
    **{
        f"{name} {how}": lambda t, f=getattr(torch, name), d=dims: f(t.p - 0.5, *d)  # type: ignore[misc]
        for name in ("sum", "mean", "amax", "amin")
        for how, dims in {"of all": (), "by row": (1,), "by column": (0,), "of a list": ([0, 1],), "of no list": ([],)}.items()
        if dims or name in ("sum", "mean")
    },
    "largest of NaN": lambda t: torch.cat([t.x.amax(0), t.x.amax(1), t.x.amax()[None], t.x[1:3].amax(1)]),
    "smallest of NaN": lambda t: torch.cat([t.y.amin(0), t.y.amin(1), t.y.amin()[None], t.x[1:3].amin(1)]),
    "kept dimensions": lambda t: t.p.sum(1, keepdim=True) + t.p.mean(0, keepdim=True) - t.p.amax((0, 1), keepdim=True),
    "product": lambda t: t.p.prod() + t.i[:, 3].prod(),
    "of nothing": lambda t: t.p[:0].sum(0) + t.p[:, :0].prod() + t.p[:0].sum() + (t.p[:0] > 0).any(0),
    "any": lambda t: torch.cat([(t.x > 0).any(0), (t.p > 9).any()[None], (t.x > 2).any((0, 1))[None], (t.x > 2).any(1)]),
    "all": lambda t: torch.cat([(t.x > -9).all(0), (t.p > 0).all()[None], (t.p > 0).all((0, 1))[None], (t.x > 0).all(1)]),
    **{
        f"{name} of rows {how}": lambda t, f=getattr(torch, name), d=dim, k=keep, w=which: f(w(t), d, keepdim=k)[0] * 2  # type: ignore[misc]
        for name in ("max", "min")
        for how, dim, keep, which in (
            ("of numbers", 1, False, lambda t: t.x),
            ("of columns", 0, True, lambda t: t.y),
            ("of whole numbers", -1, False, lambda t: t.i),
            ("of one", 1, False, lambda t: t.p[:, :1]),
        )
    },
    "numbers of the largest": lambda t: t.x.max(1)[1] + t.y.argmin(1) + t.p.argmax(1) + (t.i.remainder(2)).min(1)[1].repeat(1),
    "where it is true first": lambda t: (t.x > 0).max(0, keepdim=True)[1] + (t.x > 0).max(0)[0].to(torch.int64),
    "sums so far": lambda t: t.x.cumsum(0) + t.p.cumsum(1) + t.p[:, :1].cumsum(1) + t.i.cumsum(0)[:, :1] + t.b.cumsum(0),
    "products so far": lambda t: t.p.cumprod(1) + t.p.cumprod(0) + t.p[:1].cumprod(0) + (t.p - 0.4).cumprod(-1)[None, 0],
    "counts": lambda t: (t.x > 0).sum(0) + t.i.sum(0) + t.i.sum(),
}  # fmt: skip

SHAPES: dict[str, Case] = {
    "views": lambda t: t.x.view(8, 3).reshape(4, 6).T.reshape(24) + t.p.permute(1, 0).reshape(24),
    "unsqueezed": lambda t: (t.x[None, :, None] + t.p[:, None][None].squeeze(0)).squeeze(),
    "squeezed": lambda t: (t.x[:, None] * 2).squeeze(1) + (t.x[None, :, None] * 2).squeeze((0, 2)) + (t.p[None] * 3).squeeze(),
    "expanded": lambda t: t.x[:1].expand(6, 4) * t.p[:, :1],
    "selected": lambda t: t.x[2] + t.x[1:4:2, 3].sum() + t.p[-1],
    "split": lambda t: t.x.split(2)[1] * t.p.split([1, 3, 2])[2] + t.y.unbind(1)[2][:2, None] + t.p.chunk(2)[1][:2],
    "diagonal": lambda t: t.x.diagonal() + t.p.diagonal(1)[0] + t.p.diagonal(-2),
    "joined": lambda t: torch.cat([t.x, t.p[:0], 2 * t.p, t.y[:1]]) + torch.cat([t.p[:, 1:], t.p[:, :1]], 1).sum(),
    "with one row": lambda t: t.p.select_scatter(t.x[0], 0, 2) + t.p.select_scatter(t.x[:, 1] * 2, 1, -1),
    "with some rows": lambda t: t.p.slice_scatter(t.x[:2], 0, 1, 5, 2) + t.p.slice_scatter(t.x[:, :1], 1, 3),
    "with a diagonal": lambda t: t.p.diagonal_scatter(t.x[0]) + t.p.diagonal_scatter(t.x[1, :2], -4),
    "strides of one's own": lambda t: torch.as_strided(t.p * 2, (3, 2), (8, 1), 1)
    + torch.as_strided_scatter(t.p, t.x[:2, 0], (2,), (5,), 3)[:3, :2],
    "new with strides": lambda t: aten.new_empty_strided(t.p, [6, 4], [4, 1]).copy_(t.p) + aten.copy(t.p, t.x[0]),
    "padded": lambda t: torch.nn.functional.pad(t.p, (1, 2, 0, 1), value=1.5)[:6, 1:5] * torch.nn.functional.pad(t.x, (-1, 1)),
    "cut": lambda t: torch.nn.functional.pad(2 * t.p, (-1, -1, -2, 0)) + torch.nn.functional.pad(t.x, (0, -2, -1, -1)),
    "repeated": lambda t: t.p.repeat(2, 1, 3)[1, :, 4:8] + t.p[:2, :1].repeat(3, 4),
    "turned round": lambda t: t.p.flip(0) + (2 * t.x).flip(1) + t.p.flip(0, 1) - t.x[:1].flip(0),
    "entries put": lambda t: t.p.scatter(1, t.i % 4, t.x)[:, :1] + t.p.scatter(0, t.i[:1].abs() % 6, 7.0),
    "entries added": lambda t: t.p.scatter_add(1, t.i % 4, t.p) + t.p.scatter_add(0, t.i[:2, :3].abs() % 6, t.p),
    "columns by number": lambda t: t.x[:, t.k] + t.p[:, t.k[None]].sum(1) + t.p.reshape(2, 3, 4)[:, t.k.abs(), t.k].repeat(3, 1),
    "columns put": lambda t: aten.index_put(t.p, [None, t.k.abs()], t.x, True) + aten.index_put(t.p, [None, t.k], t.p[:1]),
    "rows by number": lambda t: t.x[t.k] + t.p[t.k, t.k.abs()][:, None],
    "entries by number": lambda t: t.x.gather(1, (t.i % 4)) + t.p.gather(0, t.i[:2].abs() % 6).sum(),
    "rows put": lambda t: t.p.index_put((t.k,), t.x[:4]) + t.p.index_put((t.k % 2,), t.p[:4], accumulate=True),
}  # fmt: skip


def positive(t: Inputs) -> Tensor:
    """Return a matrix ``[6, 6]`` that is positive definite."""
    return t.p @ t.p.T + torch.eye(6, dtype=t.p.dtype)


def failing(t: Inputs) -> Tensor:
    """Return factors of matrices the second of which has none, and for each the order of the minor that is not positive."""
    factor, info = torch.linalg.cholesky_ex(torch.stack([positive(t), positive(t) - 3 * torch.eye(6, dtype=t.p.dtype)]))
    return torch.where((info > 0)[:, None, None], torch.nan, factor) + info[:, None, None]


def systems(t: Inputs) -> Tensor:
    """Return solutions of triangular systems: from both sides, of both kinds, with one right side or many, turned, in batches."""
    lower, found = torch.linalg.cholesky_ex(positive(t))[0], []
    for matrix, upper in (
        (lower, False),
        (lower.T, True),
        (lower.mT.contiguous(), True),
        (lower.T.contiguous().T, False),
    ):
        for unit in (False, True):
            solve = functools.partial(torch.linalg.solve_triangular, matrix, upper=upper, unitriangular=unit)
            found += [solve(t.p), solve(t.p[:, :1]), solve(t.p.T, left=False), solve(t.p[:, :1].T, left=False)]
    batch = torch.linalg.cholesky_ex(torch.stack([positive(t), 2 * positive(t)]))[0]
    sides = torch.stack([t.p, t.p + 1])
    for several in (batch, batch[1], batch[1:]):  # one matrix serves all right sides
        found += [torch.linalg.solve_triangular(several, sides, upper=False).sum(0)]
    return torch.cat([each.flatten() for each in found])


def general_systems(t: Inputs) -> Tensor:
    """Return inverses, solutions and determinants of matrices the rows of which have to be exchanged."""
    matrix, solve = positive(t)[[2, 0, 1, 5, 3, 4]], torch.linalg.solve_ex
    batch = torch.stack([matrix, matrix.T, 0 * matrix])
    inverse, info = torch.linalg.inv_ex(batch)
    spoilt = torch.where((info > 0)[:, None, None], torch.nan, inverse)
    found = [solve(batch[:2], t.p)[0], solve(matrix, t.p.T, left=False)[0], solve(matrix, t.p[:, 0])[0]]
    return torch.cat(
        [spoilt.flatten(), *(each.flatten() for each in found), torch.slogdet(batch[:2])[1], info.to(matrix)]
    )


MATRICES: dict[str, Case] = {
    "general systems": general_systems,
    "Cholesky factor": lambda t: (
        torch.linalg.cholesky_ex(positive(t))[0] + torch.linalg.cholesky_ex(positive(t).T * 2)[0]
    ),
    "Cholesky factors": failing,
    "Cholesky factor of a number": lambda t: torch.linalg.cholesky_ex(t.p[:1, :1])[0],
    "triangular systems": systems,
    "products of many": lambda t: (
        torch.bmm(t.p.view(2, 3, 4), t.p.view(2, 4, 3)).sum(0)
        + torch.bmm(t.w.view(4, 25, 120)[:, :3], t.w.view(4, 25, 120)[:, :3].mT).sum(0)
    ),
}


def looped(t: Inputs) -> Tensor:
    """Double numbers until one of them is large."""
    (found,) = while_loop(lambda s, f: s[0].sum() < 100.0, lambda s, f: (s[0] * 2 + f,), (t.p,), t.p)
    return found


CASES = {**NUMBERS, **CHOICES, **REDUCED, **SHAPES, **MATRICES, "loop": looped}


def natively(
    function: Callable[..., list[Tensor]], given: tuple[Tensor, ...]
) -> tuple[Any, list[Tensor], list[Tensor]]:
    """Return the graph of a function, what its C++ gives, and what torch gives; whatever cannot be written is an error."""
    expected = function(*[each.clone() for each in given])
    outs = [torch.zeros_like(each).contiguous() for each in expected]

    def written(*tensors: Tensor) -> list[Tensor]:
        return [out.copy_(value) for out, value in zip(tensors, function(*tensors[len(outs) :]), strict=False)]

    graph = trace_loops(written, [*outs, *(each.clone() for each in given)], for_native())  # type: ignore[arg-type]
    function_of(built(source_of(graph)))(*outs, *(each.clone() for each in given))
    return graph, outs, expected


@cache
def all_cases(dtype: torch.dtype) -> tuple[Any, list[Tensor], list[Tensor]]:
    """Return the graph of all cases at once, since most of the time goes into starting a compiler, and both results."""
    torch.set_default_dtype(dtype)
    return natively(lambda *t: [case(Inputs(*t)) for case in CASES.values()], inputs(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_gives_what_torch_gives(name: str, dtype: torch.dtype) -> None:
    _, found, expected = all_cases(dtype)
    place = list(CASES).index(name)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found[place], expected[place], rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hyperbolic_functions_keep_their_digits_at_all_sizes(dtype: torch.dtype) -> None:
    """From next to nothing to infinity, as numpy has them: torch's are infinite from 710.3 on, where sinh is 1.5e308."""
    of_all_sizes = torch.cat([torch.logspace(-30, 36, 4001), torch.linspace(0, 100, 4001), 705 + torch.arange(12.0)])
    x = torch.cat([of_all_sizes, -of_all_sizes]).to(dtype)
    names = ["expm1", "sinh", "cosh", "asinh"]
    graph, found, _ = natively(lambda x: [getattr(torch, name)(x) for name in names], (x,))
    for name, values in zip(names, found, strict=True):
        with np.errstate(over="ignore"):
            expected = torch.from_numpy(getattr(np, name.replace("asinh", "arcsinh"))(x.double().numpy())).to(dtype)
        torch.testing.assert_close(values, expected, rtol=4 * torch.finfo(dtype).eps, atol=0.0)
    library = built(source_of(graph)).read_bytes()  # which calls no function of the C library: those are not vectorised
    assert not [name for name in (b"expm1", b"sinh", b"cosh", b"log1p") if name in library]


def rows_in_place(x: Tensor, k: Tensor) -> list[Tensor]:
    x.copy_(x.index_put((k,), 2 * torch.ones(4, x.shape[1])))
    return [x]


def products_of_two(a: Tensor, b: Tensor) -> list[Tensor]:
    return [a @ b, torch.addmm(b[0, :1], a, b)]


OVER_THEMSELVES: dict[str, Callable[[Tensor], Tensor]] = {
    "turned round": lambda x: x.flip(0, 1),
    "sums so far": lambda x: x.cumsum(0),
    "products so far": lambda x: x.cumprod(1),
    "with a row of its own": lambda x: x.select_scatter(x[2], 0, 1),
    "with rows of its own": lambda x: x.slice_scatter(x[:3], 0, 1, 4),
    "with its diagonal": lambda x: x.diagonal_scatter(x[0].flip(0)),
    "entries added": lambda x: x.scatter_add(1, (x > 0).to(torch.int64), x),
    "moved": lambda x: torch.nn.functional.pad(x, (1, -1, -1, 1)),
    "columns by number": lambda x: x[:, (x[0] > 0).to(torch.int64)],
    "largest": lambda x: x.max(1, keepdim=True)[0] + x,
    "repeated": lambda x: x[:2].repeat(2, 1),
    "Cholesky factor": lambda x: torch.linalg.cholesky_ex(x @ x.T + torch.eye(4, dtype=x.dtype))[0],
    "system": lambda x: torch.linalg.solve_triangular(x.diagonal_scatter(x.diagonal().abs() + 2), x.flip(1), upper=True),
    "products": lambda x: torch.bmm(x.view(2, 2, 4), x[:2].expand(2, 2, 4).mT).reshape(4, 2).repeat(1, 2),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_written_over_what_it_was_made_from(dtype: torch.dtype) -> None:
    """Each operation reads a tensor, and its result is written over that tensor, twice."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(4, 4, generator=generator, dtype=torch.float64).to(dtype) for _ in OVER_THEMSELVES]

    def over(*tensors: Tensor) -> list[Tensor]:
        for tensor, function in zip(tensors, OVER_THEMSELVES.values(), strict=True):
            tensor.copy_(function(tensor))
            tensor.copy_(function(tensor))
        return list(tensors)

    _, found, expected = natively(over, tuple(given))
    tolerance = 1e-3 if dtype == torch.float32 else 1e-11
    for name, a, b in zip(OVER_THEMSELVES, found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")  # type: ignore[misc]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_and_systems_of_what_is_not_a_number(dtype: torch.dtype) -> None:
    matrix = torch.eye(3, dtype=dtype).repeat(3, 1, 1)
    matrix[1, 1, 1], matrix[2, 2, 0] = NAN, NAN
    sides = torch.ones(3, 3, 2, dtype=dtype)
    sides[0, 1, 1] = INF

    def function(a: Tensor, b: Tensor) -> list[Tensor]:
        factor, info = torch.linalg.cholesky_ex(a)
        spoilt = torch.where((info != 0)[:, None, None], torch.nan, factor)
        return [info, spoilt, torch.linalg.solve_triangular(a, b, upper=False)]

    _, found, expected = natively(function, (matrix, sides))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


def test_gradients_of_general_systems() -> None:
    generator = torch.Generator().manual_seed(0)
    sides, matrices = (torch.randn(4, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    matrices[3] = 0.0

    def gradient(a: Tensor) -> tuple[Tensor]:
        def function(a: Tensor) -> Tensor:
            solved = torch.linalg.solve(a, sides[0]).square().sum() + torch.linalg.solve(a, sides[1], left=False).sum()
            return (
                solved
                + torch.linalg.solve(a, sides[2, 0]).sum()
                + torch.logdet(a @ a.T)
                + torch.inverse(a).square().sum()
            )

        return (torch.func.grad(function)(a),)

    (found,) = NativeRuns(trace(gradient, [matrices[0]])[0], [matrices[0]], moving={0})(matrices)
    torch.testing.assert_close(found[:3], torch.stack([gradient(each)[0] for each in matrices[:3]]))
    assert found[3].isnan().all()


def operations(graph: Any) -> set[Any]:
    modules = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
    return {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}


def test_every_operation_of_the_generator_is_reached() -> None:
    """An entry of its table without a case here is untested or dead."""
    t, reached = inputs(torch.float64), operations(all_cases(torch.float64)[0])
    for function, given in ((rows_in_place, (t.p, t.k)), (products_of_two, (t.p, t.p.T.contiguous()))):
        graph, found, expected = natively(function, given)
        torch.testing.assert_close(found, expected)
        reached |= operations(graph)
    missing = {str(each) for each in HANDLERS if each not in reached and each is not operator.getitem}
    assert not missing, sorted(missing)


def _given(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return numbers of every kind, others to meet them, a slope for each, and fractions ``[7, 3]``."""
    generator = torch.Generator().manual_seed(1)
    x, y, g = (3 * torch.randn(7, 3, generator=generator, dtype=torch.float64) for _ in range(3))
    x[0], y[0] = torch.tensor([0.0, INF, -INF]), torch.tensor([NAN, INF, -INF])
    x[1], y[1] = torch.tensor([NAN, 1.0, -1.0]), torch.tensor([0.5, 0.0, 1.0])
    return tuple(each.to(dtype) for each in (x, y, g, torch.rand(7, 3, generator=generator, dtype=torch.float64)))


def factor(p: Tensor) -> Tensor:
    """Return a Cholesky factor ``[3, 3]``."""
    return torch.linalg.cholesky(p.T @ p + torch.eye(3, dtype=p.dtype))


OF_TWO = {aten.logaddexp.default, aten.xlogy.Tensor, aten.special_xlog1py.default}
REWRITTEN: dict[Any, list[Callable[..., Any]]] = {
    aten.lift_fresh.default: [lambda x, y, g, p, f: f(x)],
    aten.var_mean.correction: [
        lambda x, y, g, p, f: torch.cat([each.flatten() for each in f(g, [0], correction=1, keepdim=True)]),
        lambda x, y, g, p, f: torch.stack(f(g, None)),
    ],
    aten.full_like.default: [lambda x, y, g, p, f: f(x, 2.5) + f(x, 3, dtype=torch.int64)],
    aten.empty_like.default: [  # of what it holds nothing is promised
        lambda x, y, g, p, f: torch.zeros_like(f(x)),
        lambda x, y, g, p, f: torch.zeros_like(f(x.mT, dtype=torch.int64)),
    ],
    aten.index_select.default: [
        lambda x, y, g, p, f: f(x, 0, torch.tensor([6, 1, 1])),
        lambda x, y, g, p, f: f(x, -1, torch.tensor([2, 0])),
        lambda x, y, g, p, f: f(x[2, 0], 0, torch.tensor([0])) + f(x[2], 0, torch.tensor(1)),
    ],
    aten.index_copy.default: [
        lambda x, y, g, p, f: f(x, 0, torch.tensor([6, 1]), g[:2]),
        lambda x, y, g, p, f: f(x, 1, torch.tensor([2, 0]), g[:, :2]) + f(x[2, 0], 0, torch.tensor([0]), g[0, :1]),
    ],
    aten.index_add.default: [
        lambda x, y, g, p, f: f(x, 0, torch.tensor([6, 1, 6]), g[:3]),
        lambda x, y, g, p, f: f(g, 1, torch.tensor([2, 0]), g[:, :2], alpha=-2),
        lambda x, y, g, p, f: f(g[2, 0], 0, torch.tensor(0), g[0, 0], alpha=3),
    ],
    aten.clamp.default: [
        lambda x, y, g, p, f: f(x, -1.0, 1.0),
        lambda x, y, g, p, f: f(x, None, 1.0) + f(x, -2.0),
    ],
    aten.clamp.Tensor: [lambda x, y, g, p, f: f(x, g - 1, g), lambda x, y, g, p, f: f(x, None, g)],
    aten.stack.default: [lambda x, y, g, p, f: f([x, g], -1), lambda x, y, g, p, f: f([x, g])],
    **{each: [lambda x, y, g, p, f: f(x, y)] for each in OF_TWO},
    aten.logsumexp.default: [
        lambda x, y, g, p, f: f(torch.stack([x, y]), [0]),
        lambda x, y, g, p, f: f(x[2:], [0, 1], True),
    ],
    aten.xlogy.Scalar_Self: [lambda x, y, g, p, f: f(0.0, y) + f(2, y)],
    aten.xlogy.Scalar_Other: [lambda x, y, g, p, f: f(x, 2.0)],
    aten.softplus.default: [lambda x, y, g, p, f: f(x), lambda x, y, g, p, f: f(x, 2.0, 3.0)],
    aten.elu.default: [lambda x, y, g, p, f: f(x), lambda x, y, g, p, f: f(x, 0.5, 1.2, 0.7)],
    aten.gelu.default: [lambda x, y, g, p, f: f(g), lambda x, y, g, p, f: f(g, approximate="tanh")],
    aten.leaky_relu.default: [lambda x, y, g, p, f: f(x), lambda x, y, g, p, f: f(x, 0.3)],
    aten.hardtanh.default: [lambda x, y, g, p, f: f(x), lambda x, y, g, p, f: f(x, -2.0, 0.5)],
    aten.threshold.default: [lambda x, y, g, p, f: f(x, 0.5, 2.0)],
    aten.addcmul.default: [lambda x, y, g, p, f: f(x, y, g), lambda x, y, g, p, f: f(x, y, g, value=-0.5)],
    aten.addcdiv.default: [lambda x, y, g, p, f: f(x, y, g), lambda x, y, g, p, f: f(x, y, g, value=-0.5)],
    aten.lerp.Scalar: [lambda x, y, g, p, f: f(p, g, 0.3), lambda x, y, g, p, f: f(p, g, 0.8)],
    aten.lerp.Tensor: [lambda x, y, g, p, f: f(x, g, p)],
    aten.logit.default: [lambda x, y, g, p, f: f(x), lambda x, y, g, p, f: f(x, 0.1)],
    aten.dot.default: [lambda x, y, g, p, f: f(g.flatten(), p.flatten())],
    aten.mv.default: [lambda x, y, g, p, f: f(g, p[0])],
    aten.silu.default: [lambda x, y, g, p, f: f(g)],
    aten.log_sigmoid_forward.default: [lambda x, y, g, p, f: torch.stack(f(x))],
    aten.sigmoid_backward.default: [lambda x, y, g, p, f: f(g, p)],
    aten.tanh_backward.default: [lambda x, y, g, p, f: f(g, p)],
    aten.softplus_backward.default: [lambda x, y, g, p, f: f(g, x, 1.0, 20.0), lambda x, y, g, p, f: f(g, x, 2.0, 3.0)],
    aten.log_sigmoid_backward.default: [lambda x, y, g, p, f: f(g, x, aten.log_sigmoid_forward(x)[1])],
    aten.elu_backward.default: [
        lambda x, y, g, p, f: f(g, 0.5, 1.2, 0.7, False, 4 * p - 2),
        lambda x, y, g, p, f: f(g, 0.5, 1.2, 0.7, True, p - 0.3),
    ],
    aten.gelu_backward.default: [lambda x, y, g, p, f: f(g, p), lambda x, y, g, p, f: f(g, p, approximate="tanh")],
    aten.silu_backward.default: [lambda x, y, g, p, f: f(g, p)],
    aten.leaky_relu_backward.default: [lambda x, y, g, p, f: f(g, x, 0.3, False)],
    aten.hardtanh_backward.default: [lambda x, y, g, p, f: f(g, 8 * p - 4, -2.0, 0.5)],
    aten._softmax.default: [lambda x, y, g, p, f: f(g, 1, False), lambda x, y, g, p, f: f(x, 0, False)],
    aten._log_softmax.default: [lambda x, y, g, p, f: f(g, 1, False), lambda x, y, g, p, f: f(x, 0, False)],
    aten._softmax_backward_data.default: [lambda x, y, g, p, f: f(g, p, 1, p.dtype)],
    aten._log_softmax_backward_data.default: [lambda x, y, g, p, f: f(g, p.log(), 0, p.dtype)],
    aten.logit_backward.default: [lambda x, y, g, p, f: f(g, 2 * p - 0.5), lambda x, y, g, p, f: f(g, p, 0.1)],
    aten.sgn.default: [lambda x, y, g, p, f: f(x)],
    aten._cdist_forward.default: [
        lambda x, y, g, p, f: f(g, p, 2.0, 2),
        lambda x, y, g, p, f: f(g, p, 1.0, None),
        lambda x, y, g, p, f: f(torch.stack([g, p]), p[None], 2.0, 2),
    ],
    aten._cdist_backward.default: [
        lambda x, y, g, p, f: f(g @ p.T, g, p, 2.0, aten._cdist_forward(g, p, 2.0, 2)),
        lambda x, y, g, p, f: f(g @ p.T, g, g, 2.0, aten._cdist_forward(g, g, 2.0, 2)),
        lambda x, y, g, p, f: f(g @ p.T, g, p, 1.0, aten._cdist_forward(g, p, 1.0, None)),
    ],
    aten.erfinv.default: [
        lambda x, y, g, p, f: f(p.new_tensor([-0.3, 0.0, 1e-30, 1 - 1e-7, -1 + 3e-7, 1.0, -1.0, 1.1, NAN])),
        lambda x, y, g, p, f: f(torch.linspace(-0.999, 0.999, 4001, dtype=p.dtype)),
    ],
    aten.special_erfcx.default: [
        lambda x, y, g, p, f: f(torch.linspace(-5, 40, 4001, dtype=p.dtype)),
        lambda x, y, g, p, f: f(p.new_tensor([1e4, 1e30, INF, -INF, NAN, 0.0])),
    ],
    aten.polygamma.default: [
        lambda x, y, g, p, f: f(1, torch.logspace(-3, 6, 2001, dtype=p.dtype)),
        lambda x, y, g, p, f: f(1, p.new_tensor([-0.3, -1.6, 0.4999, 0.5, INF, NAN])),
    ],
    aten.embedding.default: [lambda x, y, g, p, f: f(p, torch.tensor([[0, 2], [1, 1]]))],
    aten.unfold.default: [
        lambda x, y, g, p, f: f(p, 0, 3, 2),
        lambda x, y, g, p, f: f(p, -1, 2, 1),
        lambda x, y, g, p, f: f(p, 1, 2, 1),
    ],
    aten.cholesky_inverse.default: [
        lambda x, y, g, p, f: f(factor(p)),
        lambda x, y, g, p, f: f(factor(p).mT.contiguous(), True),
    ],
    aten.cholesky_solve.default: [
        lambda x, y, g, p, f: f(p.T, factor(p)),
        lambda x, y, g, p, f: f(p.T, factor(p).mT.contiguous(), True),
    ],
    aten.linalg_lu_solve.default: [
        lambda x, y, g, p, f: f(*aten.linalg_lu_factor(p.T @ g), p, left=False),
        lambda x, y, g, p, f: f(*aten.linalg_lu_factor(p.T @ g), torch.stack([p.T, g.T])),
    ],
    aten.linalg_inv_ex.default: [
        lambda x, y, g, p, f: f(p.T @ g)[0],
        lambda x, y, g, p, f: f(torch.stack([p.T @ g, 0 * p.T @ g, g.T @ p]))[1],
    ],
    aten._linalg_solve_ex.default: [
        lambda x, y, g, p, f: f(p.T @ g, p.T)[0],
        lambda x, y, g, p, f: f(p.T @ g, p[0])[0],
        lambda x, y, g, p, f: f(p.T @ g, p, left=False)[0],
        lambda x, y, g, p, f: f(torch.stack([p.T @ g, g.T @ p]), torch.stack([p.T, g.T]))[1],
        lambda x, y, g, p, f: f((p.T @ g).T, p.T)[1],
        lambda x, y, g, p, f: f((p.T @ g).T, p, left=False)[0],
    ],
    aten._linalg_slogdet.default: [
        lambda x, y, g, p, f: torch.stack(f(torch.stack([p.T @ g, -(p.T @ g), 0 * p.T @ g, g.T @ p]))[:2]),
        lambda x, y, g, p, f: f(p.T @ g)[2],
        lambda x, y, g, p, f: f((p.T @ g).T)[2],
    ],
    aten._linalg_det.default: [
        lambda x, y, g, p, f: f(torch.stack([p.T @ g, 0 * p.T @ g, g.T @ p]))[0],
        lambda x, y, g, p, f: f(p.T @ g)[1],
        lambda x, y, g, p, f: f((p.T @ g).T)[1],
    ],
}


SYSTEMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "solution": lambda matrix, b: torch.linalg.solve(matrix, b),
    "solution of the transpose": lambda matrix, b: torch.linalg.solve(matrix.mT, b),
    "solution from the right": lambda matrix, b: torch.linalg.solve(matrix, b.T, left=False),
    "inverse": lambda matrix, b: torch.linalg.inv(matrix),
    "determinant": lambda matrix, b: torch.linalg.det(matrix),
    "logarithm of the determinant": lambda matrix, b: torch.linalg.slogdet(matrix)[1],
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_derivatives_take_the_factors_that_are_written(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    matrix, b = torch.randn(4, 4, generator=generator), torch.randn(4, 2, generator=generator)

    def gradient(x: Tensor) -> tuple[Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(SYSTEMS[name](matrix + x.diag(), b).sin().sum(), x)  # type: ignore[return-value]

    graph, _ = trace(gradient, [torch.randn(4, generator=generator)])
    written = trace_loops(lambda x: tuple(graph(x)), [torch.ones(4)], for_native())
    x = torch.randn(4, generator=generator)
    torch.testing.assert_close(written(x)[0], gradient(x)[0])


TORCH_ERRS = {aten.polygamma.default: 2e-9}
"""How far torch itself is from the value, where that is more than rounding."""


def test_the_derivative_of_digamma_is_that_of_scipy() -> None:
    x = torch.cat([torch.logspace(-3, 6, 2001, dtype=torch.float64), torch.tensor([-0.3, -1.6, 0.4999, 0.5])])
    expected = torch.from_numpy(polygamma(1, x.numpy()))
    torch.testing.assert_close(DECOMPOSED[aten.polygamma.default](1, x), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("operation", DECOMPOSED, ids=str)
def test_what_is_written_with_others_gives_what_torch_gives(operation: Any, dtype: torch.dtype) -> None:
    tolerance = 1e-5 if dtype == torch.float32 else TORCH_ERRS.get(operation, 1e-12)
    for case in REWRITTEN[operation]:
        found, expected = (case(*_given(dtype), function) for function in (DECOMPOSED[operation], operation))
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


SIZES = {
    "written out": (7, 5, 9),
    "written out, high": (9, 5, 7),
    "few rows": (3, 40, 30),
    "few columns": (30, 40, 3),
    "some rows": (9, 40, 30),
    "some columns": (30, 40, 9),
    "loops": (20, 30, 25),
    "library": (70, 90, 80),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products(dtype: torch.dtype) -> None:
    """Of matrices that are not square, whichever way they lie, parts of larger ones and expressions, with what is added."""
    generator, given, names = torch.Generator().manual_seed(0), [], []
    for name, (rows, terms, columns) in SIZES.items():
        assert (rows * terms * columns >= GEMM_FROM) == (name == "library")
        for left_turned in (False, True):
            for right_turned in (False, True):
                left = torch.randn(*((terms, rows) if left_turned else (rows, terms)), generator=generator, dtype=dtype)
                right = torch.randn(
                    *((columns, terms) if right_turned else (terms, columns)), generator=generator, dtype=dtype
                )
                given += [left, right]
                names.append((name, left_turned, right_turned))

    def products(*tensors: Tensor) -> list[Tensor]:
        found = []
        for (name, left_turned, right_turned), left, right in zip(names, tensors[::2], tensors[1::2], strict=True):
            a, b = left.T if left_turned else left, right.T if right_turned else right
            found += [a @ b]
            if name == "library" or left_turned < right_turned:  # each kind once
                found += [(2 * a) @ b.sin(), a[1:, :-2] @ b[2:, 1:], torch.addmm(b[0], a, b, alpha=2.0, beta=-3.0)]
        return found

    _, found, expected = natively(products, tuple(given))
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
