"""Tensors seen in another shape: nothing is computed, only places move."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from bnnzoo.engine.cpp.scope import Scope, Value
from bnnzoo.engine.cpp.values import Affine, Body, Cannot, Lazy, Read, Shape, View, contiguous_strides, count

__all__ = ["broadcast", "seen", "viewed", "with_sizes"]

aten = torch.ops.aten


def seen(scope: Scope, node: Node) -> Any:
    """See a tensor in another shape."""
    value = scope.of(node.args[0])
    found = viewed(value, node.target, node.args[1:], node.kwargs)
    if found is None:
        memory = scope.memory(value.lazy() if isinstance(value, View) else value, in_order=True)
        found = viewed(memory, node.target, node.args[1:], node.kwargs)
    if found is None:
        raise Cannot(f"{node.target} of a tensor of shape {value.shape}")
    return found


def viewed(value: Value, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Let torch say how an operation sees memory of the strides of ``value``; None if it cannot see it so."""
    strides = value.strides if isinstance(value, View) else contiguous_strides(value.shape)
    like = torch.empty_strided(value.shape, strides, dtype=value.dtype, device="meta")
    try:
        found = target(like, *args, **kwargs)
    except RuntimeError:
        return None
    if isinstance(found, list | tuple):
        parts = [_as_seen(value, each) for each in found]
        return None if any(each is None for each in parts) else tuple(parts)
    return _as_seen(value, found)


def _as_seen(value: Value, found: torch.Tensor) -> Value | None:
    shape, strides, offset = tuple(found.shape), found.stride(), int(found.storage_offset())
    if isinstance(value, View):
        return View(value.buffer, shape, strides, value.offset + offset)
    steps = _steps(value.shape, shape, strides, offset)
    if steps is None:
        return None
    start, moves = steps

    reads = []
    for read in value.reads:
        by = tuple(read.strides[dim] * step if step else 0 for dim, step in moves)
        first = read.offset + sum(place * stride for place, stride in zip(start, read.strides, strict=True))
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, by, strict=True))
        reads.append(Read(read.buffer, by, first, extent))

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        places = [Affine({}, each) for each in start]
        for each, (dim, step) in zip(index, moves, strict=True):
            if step:
                places[dim] = places[dim].plus(each.scaled(step))
        return value.emit(body, tuple(places))

    return Lazy(shape, value.dtype, emit, tuple(reads), value.uses, value.cost)


def _steps(
    inner: Shape, shape: Shape, strides: Sequence[int], offset: int
) -> tuple[list[int], list[tuple[int, int]]] | None:
    """Return where a view of an expression starts in each of its dimensions, and which dimension each new one moves along.

    None if a new dimension runs over the end of an old one.
    """
    wanted = contiguous_strides(inner)
    start, left = [], offset
    for stride in wanted:
        start.append(left // stride if stride else 0)
        left -= start[-1] * stride
    last, moves = list(start), []
    for size, stride in zip(shape, strides, strict=True):
        if stride == 0 or size == 1:
            moves.append((0, 0))
            continue
        dims = [d for d, each in enumerate(wanted) if inner[d] > 1 and each <= stride and stride % each == 0]
        if not dims:
            return None
        dim = min(dims)
        moves.append((dim, stride // wanted[dim]))
        last[dim] += (size - 1) * moves[-1][1]
    fits = all(place < max(size, 1) for place, size in zip(last, inner, strict=True))
    return (start, moves) if fits or not count(shape) else None


def broadcast(value: Lazy, shape: Shape) -> Lazy:
    """Return an expression repeated along new dimensions, and along those in which it has size 1."""
    if value.shape == shape:
        return value
    new = len(shape) - len(value.shape)
    repeats = [size == 1 != wanted for size, wanted in zip(value.shape, shape[new:], strict=True)]

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        pairs = zip(index[new:], repeats, strict=True)
        return value.emit(body, tuple(Affine() if repeat else each for each, repeat in pairs))

    def strides(read: Read) -> Shape:
        return (0,) * new + tuple(0 if r else each for each, r in zip(read.strides, repeats, strict=True))

    reads = tuple(read._replace(strides=strides(read)) for read in value.reads)
    return Lazy(shape, value.dtype, emit, reads, value.uses, value.cost)


def with_sizes(value: Value, shape: Shape) -> Value:
    """Return a value with dimensions of size 1 added or dropped."""
    places = [dim for dim, size in enumerate(value.shape) if size != 1]
    if isinstance(value, View):
        steps = iter([value.strides[dim] for dim in places])
        return View(value.buffer, shape, tuple(next(steps) if size != 1 else 1 for size in shape), value.offset)
    rank = len(value.shape)

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        found = dict(zip(places, (each for each, size in zip(index, shape, strict=True) if size != 1), strict=True))
        return value.emit(body, tuple(found.get(dim, Affine()) for dim in range(rank)))

    def strides(read: Read) -> Shape:
        steps = iter([read.strides[dim] for dim in places])
        return tuple(next(steps) if size != 1 else 0 for size in shape)

    reads = tuple(read._replace(strides=strides(read)) for read in value.reads)
    return Lazy(shape, value.dtype, emit, reads, value.uses, value.cost)
