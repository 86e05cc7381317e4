"""Tensors made of another one and what is written over parts of it, and tensors turned round or added up along a dimension."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from bnnzoo.engine.cpp.formulas import literal
from bnnzoo.engine.cpp.nests import Nest, Reduction
from bnnzoo.engine.cpp.scope import Scope, Value, converted, index_over
from bnnzoo.engine.cpp.values import TYPES, Affine, Body, Cannot, Lazy, Shape, View, contiguous_strides, count
from bnnzoo.engine.cpp.views import broadcast, viewed
from bnnzoo.engine.cpp.writes import added_in_lanes, lanes_pay

__all__ = [
    "PARTS",
    "SCANS",
    "accumulated",
    "copied_anew",
    "padded",
    "part_seen",
    "repeated",
    "reversed_along",
    "scattered",
    "with_part",
]

aten = torch.ops.aten

PARTS: dict[Any, Any] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}
"""Operations that write over a part of a copy, and the one that sees that part."""

SCANS: dict[Any, tuple[str, str]] = {aten.cumsum.default: ("0", "+"), aten.cumprod.default: ("1", "*")}
"""Operations that take up entry after entry along a dimension: where they start, and the sign between two entries."""


def with_part(scope: Scope, node: Node) -> View:
    """Write over a part of a copy of a tensor."""
    found = scope.memory(scope.lazy(node.args[0]), in_order=True)
    _refuse_other_strides(node, node.args[0])
    part = viewed(found, PARTS[node.target], node.args[2:], node.kwargs)
    if not isinstance(part, View):
        raise Cannot(f"{node.target} of a tensor of shape {found.shape}")
    if count(part.shape):
        scope.store(part, broadcast(scope.lazy(node.args[1]), part.shape))
    return found


def part_seen(scope: Scope, node: Node) -> View:
    """See a tensor with strides of one's own."""
    _refuse_other_strides(node, node.args[0])
    found = viewed(scope.memory(scope.lazy(node.args[0]), in_order=True), node.target, node.args[1:], node.kwargs)
    if not isinstance(found, View):
        raise Cannot(f"{node.target}")
    return found


def _refuse_other_strides(node: Node, source: Any) -> None:
    """Refuse strides of one's own of a tensor that torch lays out in another way than it is laid out here."""
    if node.target in (aten.as_strided.default, aten.as_strided_scatter.default):
        value = source.meta["val"]
        if not value.is_contiguous() or value.storage_offset():
            raise Cannot("strides of a tensor with gaps")


def padded(scope: Scope, node: Node) -> View:
    """Write a tensor with a border of one number, or without its border."""
    source, shape = scope.lazy(node.args[0]), tuple(node.meta["val"].shape)
    number: Any = node.args[2] if len(node.args) > 2 else 0
    given: Any = node.args[1]
    pairs = [(0, 0)] * (len(shape) - len(given) // 2) + list(zip(given[-2::-2], given[::-2], strict=True))
    text = literal(number, source.dtype)
    found = scope.memory(Lazy(shape, source.dtype, lambda body, index: body.let(source.dtype, text)), in_order=True)
    cut = [max(-low, 0) for low, _ in pairs]
    kept = [size - max(-low, 0) - max(-high, 0) for size, (low, high) in zip(source.shape, pairs, strict=True)]
    if all(each > 0 for each in kept):
        inner = _moved(source, cut, tuple(kept))
        offset = sum(max(low, 0) * stride for (low, _), stride in zip(pairs, found.strides, strict=True))
        scope.store(View(found.buffer, tuple(kept), found.strides, offset), inner)
    return found


def _moved(value: Lazy, start: Sequence[int], shape: Shape) -> Lazy:
    """Return a part of an expression that starts at a place."""
    if not any(start):
        reads = tuple(each._replace(scattered=True) for each in value.reads) if shape != value.shape else value.reads
        return Lazy(shape, value.dtype, value.emit, reads, value.uses, value.cost)

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        return value.emit(body, tuple(each.plus(Affine({}, low)) for each, low in zip(index, start, strict=True)))

    uses = (*(read.access() for read in value.reads), *value.uses)
    return Lazy(shape, value.dtype, emit, uses=uses, cost=value.cost)


def reversed_along(scope: Scope, node: Node) -> Value:
    """Write a tensor with some of its dimensions turned round."""
    source = scope.memory(scope.of(node.args[0]))
    rank = len(source.shape)
    given: Any = node.args[1]
    dims = {dim % rank for dim in given}

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        ends = enumerate(zip(index, source.shape, strict=True))
        turned = (Affine({}, n - 1).plus(each.scaled(-1)) if dim in dims else each for dim, (each, n) in ends)
        return body.load(source.buffer, source.read.place(tuple(turned)))

    return scope.kept(node, Lazy(source.shape, source.dtype, emit, uses=(source.read.access(),), cost=1))


def repeated(scope: Scope, node: Node) -> Value:
    """Write a tensor several times, one copy behind the other, along its dimensions."""
    source, shape = scope.memory(scope.of(node.args[0])), tuple(node.meta["val"].shape)
    new = len(shape) - len(source.shape)

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        places = []
        for at, size, whole in zip(index[new:], source.shape, shape[new:], strict=True):
            if size != whole:
                at = Affine({body.let(torch.int64, f"({at}) % {size}"): 1}) if size > 1 else Affine()
            places.append(at)
        return body.load(source.buffer, source.read.place(tuple(places)))

    return scope.kept(node, Lazy(shape, source.dtype, emit, uses=(source.read.access(),), cost=2))


def accumulated(scope: Scope, node: Node) -> Value:
    """Write sums or products of the entries so far along a dimension."""
    value, dtype = scope.lazy(node.args[0]), node.meta["val"].dtype
    shape, rank = value.shape, max(len(value.shape), 1)
    given: Any = node.args[1]
    dim = given % rank
    start, sign = SCANS[node.target]
    if not shape or shape[dim] == 1:
        return scope.kept(
            node, Lazy(shape, dtype, lambda body, i: converted(body, value, dtype, i), value.reads, value.uses)
        )
    found = View(scope.buffer(dtype, count(shape)), shape, contiguous_strides(shape))
    if not count(shape):
        return found
    index, sizes = index_over([*(d for d in range(rank) if d != dim), dim], shape)
    nest, name = Nest(sizes, vectorises=False), scope.program.name("a")
    nest.uses, nest.defines = value.accesses(index), [found.read.access()]
    scope.statements.add(nest)
    nest.reductions.append(Reduction(name, TYPES[dtype], len(sizes) - 1, start, ""))
    nest.body.lines.append(f"{name} = {name} {sign} {converted(nest.body, value, dtype, index)};")
    nest.body.lines.append(f"{found.buffer.name}[{found.read.place(index)}] = {name};")
    return found


def copied_anew(scope: Scope, node: Node) -> Value:
    """Write a tensor in the shape and type of another."""
    value, result = scope.lazy(node.args[1]), node.meta["val"]
    wide = broadcast(value, tuple(result.shape))

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        return converted(body, wide, result.dtype, index)

    return scope.kept(node, Lazy(wide.shape, result.dtype, emit, wide.reads, wide.uses, wide.cost))


def scattered(scope: Scope, node: Node) -> View:
    """Write, or add, entries at numbers along a dimension of a copy of a tensor."""
    found = scope.memory(scope.lazy(node.args[0]), in_order=True)
    number, rank = scope.lazy(node.args[2]), max(len(found.shape), 1)
    along: Any = node.args[1]
    dim, given = along % rank, node.args[3]
    adds = node.target is aten.scatter_add.default
    shape = number.shape
    if not shape or not count(shape):
        raise Cannot("numbers of no dimension")
    value = _moved(scope.lazy(given), (0,) * len(shape), shape) if isinstance(given, Node) else None
    if adds and value is not None and lanes_pay(found, shape):
        added_in_lanes(scope, found, number, value)
        return found
    index, sizes = index_over(range(len(shape)), shape)
    nest = Nest(sizes, vectorises=False)
    read = [*number.accesses(), *(value.accesses() if value is not None else [])]
    nest.uses, nest.defines = [*read, found.read.access()], [found.read.access()]
    scope.statements.add(nest)
    body = nest.body
    row = Affine({converted(body, number, torch.int64, index): 1})
    entry = literal(given, found.dtype) if value is None else converted(body, value, found.dtype, index)
    place = found.read.place((*index[:dim], row, *index[dim + 1 :]))
    body.lines.append(f"{found.buffer.name}[{place}] {'+=' if adds else '='} {entry};")
    return found
