"""Giving a traced graph the layout that CPUs handle best: the long dimension, the data's rows, innermost."""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from bnnzoo.engine.simplify import drop_dead
from bnnzoo.engine.torch_private import OpOverload

__all__ = ["NARROW", "turn_products"]

aten = torch.ops.aten

NARROW = 256
"""Columns from which on a row fills the processor's vectors however it lies, so that the layout of a matrix does not matter."""

TRANSPOSED = "bnnzoo.transposed"


def turn_products(graph: GraphModule) -> None:
    """Compute matrix products with fewer columns than rows as transposes, in place, and what follows them likewise.

    Entry by entry, an activation of 600 rows and 50 columns takes half the time as 50 x 600, because 50 is not a multiple of
    the vector's length; a gradient with respect to 50 x 8 weights takes a third of the time as ``(x^T g)^T`` of what it takes
    as ``g^T x``. A batch of transposed activations times one vector each takes a quarter of the time if it is transposed, too.
    """
    for node in list(graph.graph.nodes):
        if node.target in (aten.mm.default, aten.bmm.default):
            if _is_faster_transposed(node):
                with graph.graph.inserting_before(node):
                    left, right = (_transposed(graph, operand) for operand in reversed(node.args))
                    _replace(graph, node, (left, right))
        elif _is_pointwise(node) and any(
            isinstance(each, Node) and TRANSPOSED in each.meta and each.meta["val"].shape == node.meta["val"].shape
            for each in node.args
        ):
            with graph.graph.inserting_before(node):
                operands: list[Any] = []
                for each in node.args:
                    if not isinstance(each, Node) or each.meta["val"].ndim == 0:
                        operands.append(each)
                    elif each.meta["val"].ndim == 1:
                        column = each.meta["val"].unsqueeze(-1)
                        operands.append(_call(graph, aten.unsqueeze.default, (each, -1), column))
                    else:
                        operands.append(_transposed(graph, each))
                _replace(graph, node, tuple(operands))
    drop_dead(graph)
    for node in graph.graph.nodes:
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default  # a transposed product may have no view of the shape asked for


def _is_faster_transposed(product: Node) -> bool:
    left, right = cast(tuple[Node, Node], product.args)
    *batch, rows, columns = product.meta["val"].shape
    if columns == 1:  # one matrix times one vector alone is fast however it lies
        return math.prod(batch) > 1 and rows > 1 and not _is_row_major(left)
    runs_along_memory = left.meta["val"].shape[-1] > rows and _is_row_major(left) and _is_row_major(right)
    return 1 < columns < min(rows, NARROW) and not runs_along_memory


def _call(graph: GraphModule, target: Any, args: tuple[Any, ...], value: Tensor) -> Node:
    new = graph.graph.call_function(target, args)
    new.meta["val"] = value
    return new


def _is_row_major(node: Any) -> bool:
    """Tell whether the entries of a row are neighbours in memory; what is transposed has stale strides further on."""
    swapped, ndim = False, node.meta["val"].ndim
    while node.target is aten.transpose.int and {dim % ndim for dim in node.args[1:]} == {ndim - 2, ndim - 1}:
        node, swapped = node.args[0], not swapped
    stride: tuple[int, ...] = node.meta["val"].stride()
    return (stride[-1] <= stride[-2]) != swapped


def _replace(graph: GraphModule, node: Node, args: tuple[Any, ...]) -> None:
    """Put the transpose of the same operation on ``args`` in a node's place."""
    new = graph.graph.call_function(node.target, args, node.kwargs)  # type: ignore[arg-type]
    new.meta["val"] = node.meta["val"].transpose(-2, -1).contiguous()
    transposed = _transposed(graph, new)
    transposed.meta[TRANSPOSED] = True
    node.replace_all_uses_with(transposed)
    graph.graph.erase_node(node)


def _transposed(graph: GraphModule, node: Any) -> Node:
    if TRANSPOSED in node.meta:
        source: Node = node.args[0]
        return source
    return _call(graph, aten.transpose.int, (node, -2, -1), node.meta["val"].transpose(-2, -1))


def _is_pointwise(node: Node) -> bool:
    """Tell whether each entry of a node's result takes nothing but the entries at its place."""
    if not isinstance(node.target, OpOverload) or torch.Tag.pointwise not in node.target.tags:
        return False
    tensors = [a for a in node.args if isinstance(a, Node)]
    return node.all_input_nodes == list(dict.fromkeys(tensors)) and all("val" in a.meta for a in (node, *tensors))
