"""Operations entry by entry, and tensors that are known entry by entry."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from bnnzoo.engine.cpp.formulas import COMPARISONS, FORMULAS, TRANSCENDENTAL, literal
from bnnzoo.engine.cpp.scope import Scope, Value, converted
from bnnzoo.engine.cpp.values import TYPES, Affine, Body, Cannot, Lazy, Shape
from bnnzoo.engine.cpp.views import broadcast

__all__ = ["FILLS", "chosen", "counted", "filled", "pointwise", "shape_of"]

aten = torch.ops.aten

COST_OF_A_FUNCTION = 20

CUT_FROM = 8
"""Operations of a function's argument from which on the function has a loop of its own: a product of eight terms leaves it too
few of 16 registers, and both wait for each other. A layer of 50 units with tanh takes 24 us in two loops and 34 us in one.
"""

FILLS: dict[Any, Callable[[tuple[Any, ...]], Any]] = {
    aten.full.default: lambda args: args[1],
    aten.scalar_tensor.default: lambda args: args[0],
    aten.empty.memory_format: lambda args: 0,
    aten.new_empty_strided.default: lambda args: 0,
}
"""Tensors that are one number throughout, and which."""


def shape_of(node: Node) -> Shape:
    """Return the shape of what a node stands for."""
    return tuple(node.meta["val"].shape)


def pointwise(scope: Scope, node: Node) -> Value:
    """Write an operation entry by entry."""
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("rounding_mode") is not None:
        raise Cannot(f"{node.target} with {dict(node.kwargs)}")
    compares = node.target in COMPARISONS
    formula = COMPARISONS[node.target] if compares else FORMULAS[node.target]
    raw = [each for each in node.args[:2] if isinstance(each, Node | int | float | bool)]
    result, shape = node.meta["val"].dtype, shape_of(node)
    common = _common(raw) if compares else result
    operands = [broadcast(scope.lazy(each), shape) if isinstance(each, Node) else each for each in raw]

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        names = [_operand(body, each, common, index) for each in operands]
        if is_function and isinstance(operands[0], Lazy) and operands[0].cost >= CUT_FROM:
            body.cut()
        return body.let(result, formula(TYPES[common], names, raw))

    is_product = node.target is aten.pow.Tensor_Scalar and node.args[1] in (1, 2, 3)
    is_function = node.target in TRANSCENDENTAL and not is_product
    cost = COST_OF_A_FUNCTION if is_function else 1
    return scope.kept(node, _joined(shape, result, emit, operands, cost))


def chosen(scope: Scope, node: Node) -> Value:
    """Write ``where``."""
    result, shape = node.meta["val"].dtype, shape_of(node)
    operands = [broadcast(scope.lazy(each), shape) if isinstance(each, Node) else each for each in node.args]

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        condition = _operand(body, operands[0], torch.bool, index)
        yes, no = (_operand(body, each, result, index) for each in operands[1:])
        return body.let(result, f"{condition} ? {yes} : {no}")

    return scope.kept(node, _joined(shape, result, emit, operands, 1))


def filled(scope: Scope, node: Node) -> Lazy:
    """Write a tensor that is one number throughout."""
    number: Any = FILLS[node.target](node.args)
    text = literal(number, node.meta["val"].dtype)
    return Lazy(shape_of(node), node.meta["val"].dtype, lambda body, index: body.let(node.meta["val"].dtype, text))


def counted(scope: Scope, node: Node) -> Lazy:
    """Write numbers one after the other, at equal steps."""
    start, step = (0, 1) if len(node.args) == 1 else (node.args[0], node.args[2] if len(node.args) > 2 else 1)
    result = node.meta["val"].dtype
    first, by = literal(start, result), literal(step, result)

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        return body.let(result, f"({TYPES[result]})({index[0]}) * {by} + {first}")

    return Lazy(shape_of(node), result, emit, cost=1)


def _operand(body: Body, operand: Any, dtype: torch.dtype, index: tuple[Affine, ...]) -> str:
    return converted(body, operand, dtype, index) if isinstance(operand, Lazy) else literal(operand, dtype)


def _joined(shape: Shape, dtype: torch.dtype, emit: Callable[..., str], operands: Sequence[Any], cost: int) -> Lazy:
    """Return an expression of others of the same shape."""
    lazies = [each for each in operands if isinstance(each, Lazy)]
    reads = tuple(dict.fromkeys(read for each in lazies for read in each.reads))
    uses = tuple(dict.fromkeys(use for each in lazies for use in each.uses))
    return Lazy(shape, dtype, emit, reads, uses, cost + sum(each.cost for each in lazies))


def _common(raw: Sequence[Any]) -> torch.dtype:
    """Return the type in which arguments are compared."""
    values = [each.meta["val"] if isinstance(each, Node) else each for each in raw]
    first = values[0]
    return torch.result_type(*values) if len(values) == 2 else first.dtype
