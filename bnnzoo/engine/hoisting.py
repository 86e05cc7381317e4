"""Loop-invariant operations, moved out of a graph's loops: log factorials of the data are computed once, not at each step."""

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from bnnzoo.engine.cpp.formulas import TRANSCENDENTAL
from bnnzoo.engine.in_place import seen_through
from bnnzoo.engine.simplify import drop_dead, is_pure
from bnnzoo.engine.torch_private import WHILE_LOOP

__all__ = ["hoist"]

aten = torch.ops.aten

COSTLY = frozenset({*TRANSCENDENTAL, aten.mm.default, aten.bmm.default, aten.addmm.default})
"""Operations for which, and for what is made of them without more entries, room is made outside of a loop."""


def hoist(graph: GraphModule) -> None:
    """Move costly operations on what a loop does not change in front of it, in place, from the innermost loop outwards."""
    for loop in graph.graph.find_nodes(op="call_function", target=WHILE_LOOP):
        args: Any = loop.args
        carried, fixed = args[2:]
        going, body = (getattr(graph, each.target) for each in args[:2])
        hoist(body)
        outside = dict(zip(_placeholders(body)[len(carried) :], fixed, strict=True))
        costly = _costly(body, outside)
        roots = [each for each in costly if any(user not in costly for user in each.users)]
        if not roots:
            continue
        with graph.graph.inserting_before(loop):
            for node in roots:
                outside[node] = _copied(graph, node, outside)
        loop.args = (*args[:3], (*fixed, *(outside[node] for node in roots)))
        for inside in (going, body):
            last = _placeholders(inside)[-1]
            for number, node in enumerate(roots, len(fixed)):  # once all are copied: some are made of others
                with inside.graph.inserting_after(last):
                    last = inside.graph.placeholder(f"hoisted{number}")
                last.meta = dict(node.meta)
                if inside is body:
                    node.replace_all_uses_with(last)
        for each in (graph, going, body):
            drop_dead(each)
            each.recompile()


def _placeholders(graph: GraphModule) -> list[Node]:
    return list(graph.graph.find_nodes(op="placeholder"))


def _costly(body: GraphModule, outside: dict[Node, Any]) -> dict[Node, int]:
    """Return the costly nodes of a body that are the same at each step, with their numbers of entries."""
    constant, costly = set(outside), dict[Node, int]()
    for node in body.graph.nodes:
        parts = node.all_input_nodes
        if node.op != "call_function" or not parts or not is_pure(node.target) or not constant.issuperset(parts):
            continue
        constant.add(node)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and seen_through(node) is None:
            size = value.numel()
            if node.target in COSTLY or any(size <= costly[each] for each in parts if each in costly):
                costly[node] = size
    return costly


def _copied(graph: GraphModule, node: Node, outside: dict[Node, Any]) -> Any:
    """Return a node of a body as one of the graph around its loop, with all that it is made of."""
    for each in _in_order(node, outside):
        found = _part_of_joined(each, outside)
        outside[each] = graph.graph.node_copy(each, lambda part: outside[part]) if found is None else found
    return outside[node]


def _in_order(node: Node, outside: dict[Node, Any]) -> Iterator[Node]:
    if node in outside:
        return
    for each in node.all_input_nodes:
        yield from _in_order(each, outside)
    if node not in outside:
        yield node


def _part_of_joined(node: Node, outside: dict[Node, Any]) -> Any:
    """Return the tensor that was joined with others before the loop, and is split from them here; None if it is none."""
    if node.target is not operator.getitem:
        return None
    split, place = _args(node)
    if not isinstance(split, Node) or split.target is not aten.split_with_sizes.default:
        return None
    whole, sizes, *_ = _args(split)
    joined = outside[whole]
    if not isinstance(joined, Node) or joined.target is not aten.cat.default or joined.meta["val"].ndim != 1:
        return None
    begins = 0
    for part in _args(joined)[0]:
        size = part.meta["val"].numel()
        if (begins, size) == (sum(sizes[:place]), sizes[place]):
            return part
        begins += size
    return None


def _args(node: Node) -> Any:
    return node.args
