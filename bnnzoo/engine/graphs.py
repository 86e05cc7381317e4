"""Tracing a function into a graph of tensor operations, and taking out what a graph does not need."""

import gc
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from bnnzoo.engine.choose import estimated_seconds
from bnnzoo.engine.decisive import ValueAsked, decide, decide_alike
from bnnzoo.engine.dtypes import with_explicit_dtypes
from bnnzoo.engine.in_place import without_writes
from bnnzoo.engine.layout import turn_products
from bnnzoo.engine.reports import preparing
from bnnzoo.engine.simplify import (
    drop_dead,
    drop_unused,
    filled,
    is_filled,
    is_pure,
    is_seen_by_strides,
    number_throughout,
    share,
    simplify,
    spoil_failures,
)
from bnnzoo.engine.torch_private import (
    fake_tensors,
    ignore_slow_batching,
    make_fx,
    tracing,
    written_when_called,
)
from bnnzoo.engine.tracer import operations_of

__all__ = [
    "copies_of",
    "fold_constants",
    "lift_constants",
    "literal",
    "trace",
    "trace_deciding",
    "trace_loops",
    "trace_shapes",
]

MIN_NUMBERS_OF_A_CONSTANT = 4096
"""Entries above which a constant that is one number throughout is kept as one number."""


@preparing("tracing")
def trace(
    flat: Callable[..., tuple[Tensor, ...]],
    inputs: list[Tensor],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> tuple[GraphModule, float]:
    """Return a function of flat tensors as a graph without waste, and roughly how many seconds one evaluation takes.

    ``decompositions`` say how some operations are written with others.
    """
    with _no_collector(), written_when_called():
        graph = _pure(flat, inputs, decompositions or {})
        on_cpu = all(tensor.device.type == "cpu" for tensor in inputs)
        spoil_failures(graph)
        with_explicit_dtypes(graph)
        drop_dead(graph)
        fold_constants(graph)
        number_rows(graph)
        simplify(graph)
        if on_cpu:
            turn_products(graph)
        share(graph)
        drop_unused(graph)
        nodes = [
            node for node in graph.graph.nodes if node.op == "call_function" and node.target is not operator.getitem
        ]
        elements = sum(node.meta["val"].numel() for node in nodes if isinstance(node.meta.get("val"), Tensor))
        seconds = estimated_seconds(len(nodes), elements, on_gpu=not on_cpu)
        graph.recompile()
        for node in graph.graph.nodes:
            node.meta.clear()  # tensors of several tracing levels in the metadata make inductor refuse the graph
    return graph, seconds


def trace_deciding(flat: Callable[..., tuple[Tensor, ...]], given: Sequence[Tensor]) -> tuple[GraphModule, float]:
    """Return what :func:`trace` does; inputs by whose values the function decides are part of the graph if they may decide."""
    try:
        return trace(flat, copies_of(given))
    except ValueAsked as error:
        asked = [given[place] for place in error.inputs]
        if not decide(asked):
            raise
    return trace_deciding(flat, given)


def copies_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors, each for itself, with what stands for their contents."""
    copies = [_copy(each.detach()) for each in tensors]
    decide_alike(copies, tensors)
    return copies


def _copy(tensor: Tensor) -> Tensor:
    """Copy a tensor with its strides, which compiled code relies on: a column of a matrix keeps its gaps."""
    if tensor.is_contiguous():
        return tensor.clone()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((extent,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def literal(flat: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor]) -> GraphModule:
    """Return a function of flat tensors as the graph of its operations as they are: it gives the same numbers, bit by bit."""
    with _no_collector(), written_when_called():
        graph = _pure(flat, inputs, {})
        drop_unused(graph)
        graph.recompile()
        for node in graph.graph.nodes:
            node.meta.clear()
    return graph


def _pure(
    flat: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], decompositions: Mapping[Any, Callable[..., Any]]
) -> GraphModule:
    """Return a function as a graph that writes into none of its tensors, if it can be."""
    with warnings.catch_warnings():
        ignore_slow_batching()
        graph = operations_of(flat, inputs, decompositions)
        return graph if without_writes(graph) else operations_of(functionalize(graph), inputs, decompositions)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Leave garbage lie for a while: tracing makes many objects that stay, and looking through them takes a tenth of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def fold_constants(graph: GraphModule) -> None:
    """Evaluate once, in place, whatever in ``graph`` depends on no input: bounds, scales, factorisations of constants."""
    values: dict[Node, Any] = {}
    for node in list(graph.graph.nodes):
        if node.op == "get_attr":
            values[node] = getattr(graph, node.target)
        elif is_filled(node):
            values[node] = filled(node)
        elif node.op == "call_function" and is_pure(node.target) and values.keys() >= set(node.all_input_nodes):
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: values[n])
            values[node] = node.target(*args, **kwargs)
    folded = [node for node in values if node.op == "call_function"]
    for node in folded:
        if isinstance(values[node], Tensor) and any(user not in values for user in node.users):
            value = values[node]
            name = f"_folded_{node.name}"
            is_long = value.numel() > MIN_NUMBERS_OF_A_CONSTANT and not is_seen_by_strides(node)
            number = number_throughout(value.detach()) if is_long else None
            graph.register_buffer(name, value.detach().clone() if number is None else number.clone())
            with graph.graph.inserting_before(node):
                constant = graph.graph.get_attr(name)
                if number is not None:
                    constant = graph.graph.call_function(torch.ops.aten.expand.default, (constant, list(value.shape)))
            constant.meta["val"] = value.detach()
            node.replace_all_uses_with(constant)
    for node in reversed(folded):  # some, such as checks of errors, are never dead code to the graph itself
        if not node.users:
            graph.graph.erase_node(node)
    drop_dead(graph)


def number_rows(graph: GraphModule) -> None:
    """Write the numbers of rows, in place, where a constant condition says which: how many there are is then known."""
    for node in list(graph.graph.nodes):
        if node.target in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default):
            chosen = [_numbers_of(graph, each) for each in node.args[1]]
            if any(found is not None for found in chosen):
                pairs = zip(node.args[1], chosen, strict=True)
                node.args = (node.args[0], [e for each, found in pairs for e in (found or [each])], *node.args[2:])
        elif node.target in (torch.ops.aten.masked_scatter.default, torch.ops.aten.masked_scatter_backward.default):
            _by_numbers(graph, node)


def _by_numbers(graph: GraphModule, node: Node) -> None:
    """Write what fills the places of a constant condition in their order, or its gradient, with the numbers of these places."""
    aten = torch.ops.aten
    first, condition, other = cast("tuple[Node, Node, Any]", node.args)
    shape = first.meta["val"].shape
    numbers = _numbers_of(graph, condition) if condition.meta["val"].shape == shape else None
    if not numbers:
        return
    num_places = numbers[0].meta["val"].numel()

    def step(target: Any, *args: Any) -> Node:
        made: Node = graph.graph.call_function(target, args)
        made.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]))
        return made

    with graph.graph.inserting_before(node):
        if node.target is aten.masked_scatter.default:
            values = step(aten.slice.Tensor, step(aten.reshape.default, other, [-1]), 0, 0, num_places)
            made = step(aten.index_put.default, first, numbers, values)
        else:
            padding = [0, math.prod(other) - num_places]
            made = step(aten.constant_pad_nd.default, step(aten.index.Tensor, first, numbers), padding)
            made = step(aten.reshape.default, made, list(other))
    node.replace_all_uses_with(made)
    graph.graph.erase_node(node)


def _numbers_of(graph: GraphModule, condition: Any) -> list[Node] | None:
    """Return the numbers, one tensor a dimension, of where a constant condition holds, None if it is nothing of the kind."""
    value = (
        getattr(graph, str(condition.target)) if isinstance(condition, Node) and condition.op == "get_attr" else None
    )
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        return None
    numbers = value.nonzero(as_tuple=True)
    found = []
    for dim, number in enumerate(numbers):
        name = f"{condition.name}_rows{dim}"
        graph.register_buffer(name, number)
        with graph.graph.inserting_after(condition):
            found.append(graph.graph.get_attr(name))
        found[-1].meta["val"] = number
    return found


@preparing("tracing")
def trace_loops(
    flat: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], decompositions: Mapping[Any, Callable[..., Any]]
) -> GraphModule:
    """Return a function of flat tensors that holds loops and changes its arguments as a graph with graphs inside.

    Operations are those left by ``decompositions``; what is written back row by row is written in place.
    """
    with torch.no_grad(), _no_collector(), written_when_called():
        graph = operations_of(flat, [tensor.clone() for tensor in inputs], decompositions, with_loops=True)
        return _in_place(graph)


def trace_shapes(
    flat: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], decompositions: Mapping[Any, Callable[..., Any]]
) -> GraphModule:
    """Return the same without computing anything, as a graph that torch's compiler takes, which has to be imported for it."""
    mode = fake_tensors(static=True)
    with torch.no_grad(), tracing(mode), mode, _no_collector():
        fakes = [mode.from_tensor(tensor) for tensor in inputs]
        return _in_place(make_fx(flat, decompositions)(*fakes))


def _in_place(graph: GraphModule) -> GraphModule:
    """Write rows into the buffers themselves where a changed copy would be written back over the whole of them.

    They are written before what they are made of is overwritten, if nothing sees the buffer from there on.
    """
    for module in graph.modules():
        if not isinstance(module, GraphModule):
            continue
        written: dict[Node, dict[Node, Node]] = {}  # of each changed copy, what has been written into since, and where
        for node in list(module.graph.nodes):
            if node.target is torch.ops.aten.index_put.default:
                written[node] = {}
            if node.target is not torch.ops.aten.copy_.default:
                continue
            buffer, changed = node.args[:2]
            if changed in written and changed.args[0] is buffer and len(changed.users) == 1:
                taken = {_seen_in(each) for each in changed.all_input_nodes if each is not buffer}
                place = min((at for since, at in written[changed].items() if since in taken), default=node)
                if place is node or not _is_seen(buffer, place, node):
                    if place is not node:
                        place.prepend(node)
                    node.target, node.args = torch.ops.aten.index_put_.default, changed.args
                    module.graph.erase_node(changed)
                    del written[changed]
            for since in written.values():
                since.setdefault(_seen_in(buffer), node)
        module.recompile()
    return graph


def _is_seen(buffer: Node, start: Node, end: Node) -> bool:
    """Return whether a node from ``start`` to before ``end`` takes a tensor or a view of it."""
    node = start
    while node is not end:
        if any(_seen_in(each) is _seen_in(buffer) for each in node.all_input_nodes):
            return True
        node = node.next
    return False


def _seen_in(node: Node) -> Node:
    """Return the tensor that a view looks at."""
    while node.op == "call_function" and (node.target is operator.getitem or getattr(node.target, "is_view", False)):
        node = node.args[0]  # type: ignore[assignment]
    return node


def lift_constants(graph: GraphModule) -> list[Tensor]:
    """Turn the constants of a graph, in place, into its first arguments, and return them."""
    fetched = [node for node in graph.graph.nodes if node.op == "get_attr"]
    names = list(dict.fromkeys(str(node.target) for node in fetched))
    first = next(iter(graph.graph.nodes))
    with graph.graph.inserting_before(first):
        places = {name: graph.graph.placeholder(f"constant{i}") for i, name in enumerate(names)}
    for node in fetched:
        node.replace_all_uses_with(places[str(node.target)])
        graph.graph.erase_node(node)
    graph.recompile()
    return [getattr(graph, name) for name in names]
