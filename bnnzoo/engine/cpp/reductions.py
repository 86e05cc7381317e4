"""Sums and other reductions over dimensions of a tensor."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from bnnzoo.engine.cpp.formulas import literal
from bnnzoo.engine.cpp.nests import Nest, Reduction
from bnnzoo.engine.cpp.scope import Scope, Value, best_order, converted, index_over
from bnnzoo.engine.cpp.values import (
    TYPES,
    Access,
    Affine,
    Body,
    Cannot,
    Lazy,
    Shape,
    View,
    contiguous_strides,
    count,
)
from bnnzoo.engine.cpp.views import with_sizes

__all__ = ["EXTREMES", "MEANS", "REDUCTIONS", "averaged", "extreme", "reduced"]

aten = torch.ops.aten


class Rule(NamedTuple):
    """What a reduction starts from, and how it takes up another entry."""

    start: str
    update: str
    adds: bool = False


SUM = Rule("0", "{0} + {1}", adds=True)
MEANS = (aten.mean.default, aten.mean.dim)
REDUCTIONS: dict[Any, Rule] = {
    aten.sum.default: SUM,
    aten.sum.dim_IntList: SUM,
    **dict.fromkeys(MEANS, SUM),
    aten.prod.default: Rule("1", "{0} * {1}"),
    aten.any.default: Rule("0", "{0} | {1}"),
    aten.any.dim: Rule("0", "{0} | {1}"),
    aten.any.dims: Rule("0", "{0} | {1}"),
    aten.amax.default: Rule("-infinity_<{t}>()", "most_<{t}>({0}, {1})"),
    aten.amin.default: Rule("infinity_<{t}>()", "least_<{t}>({0}, {1})"),
}


EXTREMES: dict[Any, str] = {
    aten.max.dim: ">",
    aten.min.dim: "<",
    aten.argmax.default: ">",
    aten.argmin.default: "<",
}
"""The first of the largest or smallest entries along a dimension, and how an entry compares with one that it replaces."""


class Over(NamedTuple):
    """A reduction: of what, over which dimensions, by which rule, to which type and shape."""

    value: Lazy
    dims: frozenset[int]
    rule: Rule
    dtype: torch.dtype
    shape: Shape


def reduced(scope: Scope, node: Node) -> Value:
    """Write a reduction over some dimensions."""
    value, dtype = scope.lazy(node.args[0]), node.meta["val"].dtype
    rank, rule = len(value.shape), REDUCTIONS[node.target]
    if "infinity" in rule.start and (0 in value.shape or not dtype.is_floating_point):
        raise Cannot(f"{node.target} of a tensor of shape {value.shape}")
    if 0 in value.shape:  # what a sum or a product starts from
        text = f"({TYPES[dtype]}){rule.start}"
        return scope.kept(node, Lazy(tuple(node.meta["val"].shape), dtype, lambda body, index: body.let(dtype, text)))
    given: Any = node.args[1] if len(node.args) > 1 else None
    dims = range(rank) if given is None or given == [] else [given] if isinstance(given, int) else given
    over = frozenset(dim % rank for dim in dims if rank)
    shape = tuple(1 if dim in over else size for dim, size in enumerate(value.shape))
    of = Over(value, over, rule, dtype, shape)
    order = best_order(of.value)
    outer, inner = ([dim for dim in order if (dim in of.dims) == reduces] for reduces in (False, True))
    if not order or order[-1] in of.dims:
        found = _inside(scope, of, *index_over([*outer, *inner], of.value.shape))
    else:
        found = _outside(scope, of, *index_over([*inner, *outer], of.value.shape))
    return with_sizes(found, tuple(node.meta["val"].shape))


def averaged(scope: Scope, node: Node) -> Value:
    """Write a mean over some dimensions: the sum, divided by the number of its terms."""
    found = reduced(scope, node)
    total = found.lazy() if isinstance(found, View) else found
    number = literal(count(scope.of(node.args[0]).shape) // count(total.shape), total.dtype)

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        return body.let(total.dtype, f"{total.emit(body, index)} / {number}")

    return scope.kept(node, replace(total, emit=emit, cost=total.cost + 1))


def extreme(scope: Scope, node: Node) -> Any:
    """Write the largest or smallest entries along a dimension and their numbers, of which NaN is the first."""
    value, given = scope.lazy(node.args[0]), node.args[1] if len(node.args) > 1 else None
    if not value.shape or given is None or not count(value.shape):
        raise Cannot(f"{node.target} of a tensor of shape {value.shape}")
    dim: int = given % len(value.shape)  # type: ignore[operator, assignment]
    result = node.meta["val"]
    whole = tuple((result[0] if isinstance(result, tuple | list) else result).shape)
    shape = tuple(1 if each == dim else size for each, size in enumerate(value.shape))
    value = _at_least_two(value, dim)
    index, sizes = index_over([*(d for d in range(len(shape)) if d != dim), dim], value.shape)
    views = [View(scope.buffer(d, count(shape)), shape, contiguous_strides(shape)) for d in (value.dtype, torch.int64)]
    nest, names = Nest(sizes, vectorises=False), [scope.program.name("a") for _ in views]
    nest.uses, nest.defines = value.accesses(index), [view.read.access() for view in views]
    scope.statements.add(nest)
    for name, view, start in zip(names, views, ("0", "-1"), strict=True):
        place = view.read.place(tuple(Affine() if d == dim else each for d, each in enumerate(index)))
        last = f"{view.buffer.name}[{place}] = {name};"
        nest.reductions.append(Reduction(name, TYPES[view.dtype], len(sizes) - 1, start, last))
    entry, (best, number) = value.emit(nest.body, index), names
    replaces = f"{entry} {EXTREMES[node.target]} {best} || ({entry} != {entry} && {best} == {best})"
    nest.body.lines.append(f"if ({number} < 0 || {replaces}) {{ {best} = {entry}; {number} = {index[dim]}; }}")
    found = tuple(with_sizes(view, whole) for view in views)
    return found if isinstance(result, tuple | list) else found[1]


def _at_least_two(value: Lazy, dim: int) -> Lazy:
    """Return an expression whose only entry along a dimension stands there twice, so that there is a loop over it."""
    if value.shape[dim] != 1:
        return value
    shape = tuple(2 if each == dim else size for each, size in enumerate(value.shape))

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        return value.emit(body, tuple(Affine() if each == dim else at for each, at in enumerate(index)))

    return Lazy(shape, value.dtype, emit, uses=tuple(value.accesses()), cost=value.cost)


def _inside(scope: Scope, of: Over, index: tuple[Affine, ...], sizes: Shape) -> Value:
    """Reduce over the innermost loops; a sum of everything is added up in double precision."""
    name, depth = scope.program.name("a"), sum(size != 1 for size in of.shape)
    dtype = torch.float64 if depth == 0 and of.rule.adds and of.dtype.is_floating_point else of.dtype
    view = _result(scope, of) if depth else None
    nest = _nest(scope, of, index, sizes, [Access(name, 0, 1)] if view is None else [view.read.access()])
    last = "" if view is None else f"{view.buffer.name}[{_place(view, of, index)}] = {name};"
    nest.reductions.append(Reduction(name, TYPES[dtype], depth, of.rule.start.format(t=TYPES[dtype]), last))
    nest.body.lines.append(f"{name} = {_update(of, nest.body, name, index)};")
    return view or _number(scope, name, dtype, of)


def _outside(scope: Scope, of: Over, index: tuple[Affine, ...], sizes: Shape) -> View:
    """Reduce over the outermost loops, in memory."""
    view = _result(scope, of)
    nest = _nest(scope, of, index, sizes, [view.read.access()])
    start = of.rule.start.format(t=TYPES[of.dtype])
    nest.before.append(f"for (int64_t i = 0; i < {count(of.shape)}; ++i) {view.buffer.name}[i] = {start};")
    entry = f"{view.buffer.name}[{_place(view, of, index)}]"
    nest.body.lines.append(f"{entry} = {_update(of, nest.body, entry, index)};")
    return view


def _nest(scope: Scope, of: Over, index: tuple[Affine, ...], sizes: Shape, defines: Sequence[Access]) -> Nest:
    if of.rule.adds:
        return scope.nest(sizes, of.value, index, defines)
    nest = Nest(sizes, vectorises=False)
    nest.uses, nest.defines = of.value.accesses(index), list(defines)
    scope.statements.add(nest)
    return nest


def _update(of: Over, body: Body, before: str, index: tuple[Affine, ...]) -> str:
    entry = converted(body, of.value, of.dtype, index)
    return of.rule.update.format(before, entry, t=TYPES[of.dtype])


def _result(scope: Scope, of: Over) -> View:
    return View(scope.buffer(of.dtype, count(of.shape)), of.shape, contiguous_strides(of.shape))


def _place(view: View, of: Over, index: tuple[Affine, ...]) -> Affine:
    return view.read.place(tuple(Affine() if dim in of.dims else each for dim, each in enumerate(index)))


def _number(scope: Scope, name: str, dtype: torch.dtype, of: Over) -> Lazy:
    """Return the number that a reduction of everything has found, in the type of the result."""
    found = scope.named(name, of.shape, dtype)
    if dtype == of.dtype:
        return found
    return scope.number(
        Lazy(of.shape, of.dtype, lambda body, index: converted(body, found, of.dtype, index), uses=found.uses)
    )
