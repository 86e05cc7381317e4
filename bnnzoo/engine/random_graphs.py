"""Graphs that draw random numbers: what is known before they are drawn, and generators that draw them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from bnnzoo.engine.simplify import is_random
from bnnzoo.engine.torch_private import overload_name, schema

__all__ = ["SplitGraph", "draws_from_generator", "split_at_random"]

aten = torch.ops.aten

CHANGES_OF_SHAPE = {
    aten.alias.default,
    aten.detach.default,
    aten.expand.default,
    aten.permute.default,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.t.default,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
}
"""Operations that cost nothing, and may make a tensor larger."""


class SplitGraph(NamedTuple):
    """A graph in two parts.

    Attributes
    ----------
    before : GraphModule
        ``(*inputs) -> (*outputs that do not depend on random numbers, *what the other part needs)``.
    after : GraphModule or None
        ``(*inputs, *what it needs) -> the other outputs``; None if there are none.
    is_known : tuple of bool
        Which outputs are those of ``before``.
    """

    before: GraphModule
    after: GraphModule | None
    is_known: tuple[bool, ...]


def split_at_random(graph: GraphModule) -> SplitGraph:
    """Return the operations of a graph that depend on random numbers, and those that come before them.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: (x.exp(), torch.bernoulli(x.sigmoid())))(torch.zeros(2))
    >>> split = split_at_random(graph)
    >>> split.is_known, [value.tolist() for value in split.before(torch.zeros(2))]
    ((True, False), [[1.0, 1.0], [0.5, 0.5]])
    """
    nodes = list(graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    outputs = list(nodes[-1].args[0])
    # the nodes that draw random numbers, or depend on some
    drawn: set[Node] = set()
    for node in nodes:
        if node.op == "call_function" and (is_random(node.target) or drawn.intersection(node.all_input_nodes)):
            drawn.add(node)
    is_known = tuple(not isinstance(each, Node) or each not in drawn for each in outputs)
    late = [each for each, known in zip(outputs, is_known, strict=True) if not known]
    again = _repeated(drawn)
    needed = list(dict.fromkeys(a for n in nodes if n in drawn | again for a in n.all_input_nodes))
    border = [node for node in needed if node not in drawn | again and node not in inputs]
    early = [each for each, known in zip(outputs, is_known, strict=True) if known]
    before = _part(graph, inputs, [*early, *border])
    after = _part(graph, [*inputs, *border], late) if late else None
    return SplitGraph(before, after, is_known)


def draws_from_generator(graph: GraphModule) -> bool:
    """Let a graph, in place, draw its random numbers from a generator, its new first argument, if all of it can; else False.

    Generators of their own draw the numbers of the global one of the same seed, and may be used side by side in threads.
    """
    nodes = [node for node in graph.graph.nodes if is_random(node.target)]
    pairs = [(node, _with_generator(node.target)) for node in nodes]
    if not all(found for _, found in pairs):
        return False
    with graph.graph.inserting_before(next(iter(graph.graph.nodes))):
        generator = graph.graph.placeholder("generator")
    for node, found in pairs:
        node.target, node.kwargs = found, {**node.kwargs, "generator": generator}
    graph.recompile()
    return True


def _with_generator(operation: Any) -> Any:
    """Return the form of a random operation that takes a generator, None if there is none."""
    packet, name = operation.overloadpacket, overload_name(operation)
    for each in (name, "generator" if name == "default" else f"{name}_generator"):
        found = getattr(packet, each, None)
        if found is not None and any(argument.name == "generator" for argument in schema(found).arguments):
            return found
    return None


def _repeated(drawn: set[Node]) -> set[Node]:
    """Return the changes of shape just before some nodes: what they make larger need not be handed over."""
    found: set[Node] = set()
    ahead = [node for each in drawn for node in each.all_input_nodes]
    while ahead:
        node = ahead.pop()
        if node.target in CHANGES_OF_SHAPE and node not in drawn | found:
            found.add(node)
            ahead += node.all_input_nodes
    return found


def _part(graph: GraphModule, inputs: Iterable[Node], outputs: list[Any]) -> GraphModule:
    """Return a graph of some nodes' values, given those of others."""
    new = Graph()
    made = {node: new.placeholder(f"input{i}") for i, node in enumerate(inputs)}
    wanted: set[Node] = set()
    ahead = [each for each in outputs if isinstance(each, Node) and each not in made]
    while ahead:
        each = ahead.pop()
        if each not in wanted:
            wanted.add(each)
            ahead += [source for source in each.all_input_nodes if source not in made]
    for node in graph.graph.nodes:
        if node in wanted:
            made[node] = new.node_copy(node, lambda each: made[each])
    new.output(tuple(made[each] if isinstance(each, Node) else each for each in outputs))
    return GraphModule(graph, new)
