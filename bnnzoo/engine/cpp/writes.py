"""Operations that write into tensors, and loops."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from bnnzoo.engine.cpp.formulas import literal
from bnnzoo.engine.cpp.nests import Nest, Statement
from bnnzoo.engine.cpp.scope import Scope, Value, converted, effective_users, index_over
from bnnzoo.engine.cpp.values import Affine, Body, Cannot, Lazy, Shape, View, contiguous_strides, count
from bnnzoo.engine.cpp.views import broadcast

__all__ = ["added_in_lanes", "copied", "gathered", "joined", "lanes_pay", "looped", "put", "put_in_place", "taken"]

LANES = 4
"""Separate sums of entries added by their numbers, if there are as many entries for each place."""


def joined(scope: Scope, node: Node) -> View:
    """Write tensors one behind the other, along a dimension."""
    shape = tuple(node.meta["val"].shape)
    given: Any = node.args[1] if len(node.args) > 1 else 0
    dim = given % len(shape)
    whole = View(scope.buffer(node.meta["val"].dtype, count(shape)), shape, contiguous_strides(shape))
    place = 0
    for each in node.args[0]:  # type: ignore[union-attr]
        value = scope.lazy(each)
        offset = whole.offset + place * whole.strides[dim]
        if count(value.shape):
            scope.store(View(whole.buffer, value.shape, whole.strides, offset), value)
            place += value.shape[dim]
    return whole


def copied(scope: Scope, node: Node) -> View:
    """Write a tensor over another."""
    target = scope.of(node.args[0])
    if not isinstance(target, View):
        if len(effective_users(node.args[0])) > 1:  # type: ignore[arg-type]
            raise Cannot("a write into what was not in memory")
        target = scope.values[node.args[0]] = scope.memory(target)  # type: ignore[index]
    value = broadcast(scope.lazy(node.args[1]), target.shape)
    order = sorted(range(len(target.shape)), key=lambda dim: -target.strides[dim])
    index, _ = index_over(order, target.shape)
    written = target.read.access(index)
    scope.before_writing(node, [written])
    if any(each.meets(written) and each.place != written.place for each in value.accesses(index)):
        value = scope.memory(value).lazy()  # it reads what it is about to overwrite
    scope.store(target, value, order)
    return target


def put_in_place(scope: Scope, node: Node) -> View:
    """Write or add rows, named by their numbers, in a tensor."""
    target = scope.of(node.args[0])
    if not isinstance(target, View):
        raise Cannot("rows written into what was not in memory")
    _put(scope, node, target)
    return target


def put(scope: Scope, node: Node) -> View:
    """Write or add rows in a copy of a tensor."""
    target = scope.memory(scope.lazy(node.args[0]), in_order=True)
    _put(scope, node, target)
    return target


def _put(scope: Scope, node: Node, target: View) -> None:
    first, places = _numbered(node.args[1])
    adds = len(node.args) > 3 and bool(node.args[3])
    common = _common_shape([scope.lazy(each).shape for each in places])
    rank = len(common)
    shape = (*target.shape[:first], *common, *target.shape[first + len(places) :])
    values = broadcast(scope.lazy(node.args[2]), shape)
    scope.before_writing(node, [target.read.access()])
    index, sizes = index_over(range(len(shape)), shape)
    numbers = [broadcast(scope.lazy(each), common) for each in places]
    uses = [use for each in numbers for use in each.accesses()]
    if any(a.meets(target.read.access()) for a in (*uses, *values.accesses())):
        raise Cannot("rows that are read where they are written")
    if adds and lanes_pay(target, shape):
        added_in_lanes(scope, target, numbers[0], values)
        return
    nest = Nest(sizes, vectorises=count(common) == 1 and not first)
    nest.uses, nest.defines = [*uses, *values.accesses(index), target.read.access()], [target.read.access()]
    scope.statements.add(nest)
    body, inner, sizes = nest.body, index[first : first + rank], target.shape[first:]
    rows = [_row(body, each, inner, size, target) for each, size in zip(numbers, sizes, strict=False)]
    place = target.read.place((*index[:first], *rows, *index[first + rank :]))
    entry = converted(body, values, target.dtype, index)
    body.lines.append(f"{target.buffer.name}[{place}] {'+=' if adds else '='} {entry};")


def lanes_pay(target: View, shape: Shape) -> bool:
    """Tell whether separate sums pay for entries of this shape: where several of them go to each place of the target."""
    return len(shape) == 1 and target.dtype.is_floating_point and LANES * count(target.shape) <= shape[0]


def added_in_lanes(scope: Scope, target: View, number: Lazy, values: Lazy) -> None:
    """Add entries by their numbers, in a sum of its own for each lane.

    An addition waits for the one before it where both go to the same place, as they do where rows of a group stand together.
    """
    (size,), (length,), dtype = target.shape, values.shape, target.dtype
    nothing = literal(0, dtype)
    parts = scope.memory(Lazy((LANES, size), dtype, lambda body, index: body.let(dtype, nothing)), in_order=True)
    whole = length // LANES
    for first, sizes in ((0, (whole, LANES)), (whole * LANES, (1, length % LANES))):
        index = (Affine({"i0": LANES, "i1": 1}, first),)
        nest = Nest(sizes, vectorises=False)
        nest.uses, nest.defines = [*number.accesses(), *values.accesses(), parts.read.access()], [parts.read.access()]
        scope.statements.add(nest)
        place = parts.read.place((Affine({"i1": 1}), _row(nest.body, number, index, size, parts)))
        nest.body.lines.append(f"{parts.buffer.name}[{place}] += {converted(nest.body, values, dtype, index)};")

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        lanes = [body.load(parts.buffer, parts.read.place((Affine({}, lane), *index))) for lane in range(LANES)]
        return body.let(dtype, " + ".join([body.load(target.buffer, target.read.place(index)), *lanes]))

    scope.store(target, Lazy(target.shape, dtype, emit, (target.read,), (parts.read.access(),)))


def taken(scope: Scope, node: Node) -> Value:
    """Take rows by their numbers."""
    first, places = _numbered(node.args[1])
    source = scope.memory(scope.of(node.args[0]))
    numbers = [scope.lazy(each) for each in places]
    common = _common_shape([each.shape for each in numbers])
    numbers = [broadcast(each, common) for each in numbers]
    shape, rank = (*source.shape[:first], *common, *source.shape[first + len(places) :]), len(common)

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        sizes, inner = source.shape[first:], index[first : first + rank]
        rows = [_row(body, each, inner, size, source) for each, size in zip(numbers, sizes, strict=False)]
        return body.load(source.buffer, source.read.place((*index[:first], *rows, *index[first + rank :])))

    return scope.kept(node, _by_numbers(source, numbers, shape, emit))


def _numbered(given: Any) -> tuple[int, list[Any]]:
    """Return the first dimension that goes by numbers, and the numbers of it and of those that follow it."""
    places = [dim for dim, each in enumerate(given) if each is not None]
    numbers = [given[dim] for dim in places]
    if places != list(range(places[0], places[0] + len(places))):
        raise Cannot("rows of dimensions that do not follow each other")
    if any(each.meta["val"].dtype == torch.bool for each in numbers):
        raise Cannot("as many rows as a condition holds for")
    return places[0], numbers


def gathered(scope: Scope, node: Node) -> Value:
    """Take entries by their numbers along a dimension."""
    source, number = scope.memory(scope.of(node.args[0])), scope.lazy(node.args[2])
    given: Any = node.args[1]
    dim = given % max(len(source.shape), 1)

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        row = _row(body, number, index, source.shape[dim], source)
        return body.load(source.buffer, source.read.place((*index[:dim], row, *index[dim + 1 :])))

    return scope.kept(node, _by_numbers(source, [number], number.shape, emit))


def _by_numbers(source: View, numbers: Sequence[Lazy], shape: Shape, emit: Any) -> Lazy:
    """Return entries found by their numbers, any of which may be read at any step."""
    uses = [source.read.access(), *(access for each in numbers for access in each.accesses())]
    return Lazy(shape, source.dtype, emit, uses=tuple(uses), cost=4)


def _row(body: Body, number: Lazy, index: tuple[Affine, ...], size: int, rows: View) -> Affine:
    """Return the number of a row, counted from the end if it is negative.

    It is as wide as an entry of the table: compilers then read many entries at a time, one number to a lane.
    """
    name = converted(body, number, torch.int64, index)
    narrow = rows.dtype.itemsize == 4 and rows.buffer.size < 2**31
    counted = f"{name} < 0 ? {name} + {size} : {name}"
    return Affine({body.let(torch.int32, f"(int32_t)({counted})") if narrow else body.let(torch.int64, counted): 1})


def _common_shape(shapes: Sequence[Shape]) -> Shape:
    return tuple(np.broadcast_shapes(*shapes))


def looped(scope: Scope, node: Node) -> tuple[View, ...]:
    """Write a loop, whose body changes what it carries in place."""
    going, body, carried, fixed = node.args
    views = [_whole(scope, each) for each in carried]  # type: ignore[union-attr]
    rest: list[Value] = []
    for each in fixed:  # type: ignore[union-attr]
        value = scope.of(each)
        rest.append(value if isinstance(value, View) or not value.reads else scope.memory(value))
    written = [view.read.access() for view in views]
    scope.before_writing(node, written)
    arguments = [*views, *rest]
    condition = Scope(scope.program, scope.of(going), arguments, scope.handlers)
    (ahead,) = condition.run()
    inner = Body()
    name = (ahead.lazy() if isinstance(ahead, View) else ahead).emit(inner, (Affine(),) * len(ahead.shape))
    step = Scope(scope.program, scope.of(body), arguments, scope.handlers)
    for view, found in zip(views, step.run(), strict=True):
        if not (isinstance(found, View) and found.buffer is view.buffer and found.offset == view.offset):
            raise Cannot("a loop that does not change what it carries in place")
    lines = ["while (true) {", *condition.render(), *inner.lines, f"if (!{name}) break;", *step.render(), "}"]
    uses = [each.read.access() for each in arguments if isinstance(each, View)]
    uses += [use for each in rest if isinstance(each, Lazy) for use in each.uses]
    scope.statements.add(Statement(lines, uses, written))
    return tuple(views)


def _whole(scope: Scope, argument: Any) -> View:
    value = scope.of(argument)
    view = scope.memory(value, in_order=True)
    if isinstance(argument, Node) and not isinstance(value, View):
        scope.values[argument] = view
    if not view.is_contiguous():
        raise Cannot("a loop that carries a tensor with gaps")
    return view
