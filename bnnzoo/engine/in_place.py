"""Turning operations that write into a tensor into those that return a new one, where nothing else sees the tensor."""

import operator
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from bnnzoo.engine.simplify import is_random
from bnnzoo.engine.torch_private import OpOverload, overload_name, schema

__all__ = ["seen_through", "without_writes"]


def without_writes(graph: GraphModule) -> bool:
    """Replace operations that write, in place; return False where one is left, as of a tensor seen by others or given.

    Distributions check their supports, and autograd adds up gradients, by writing into tensors that they have just made. Tracing
    the function again, made functional by torch, would take twice as long as tracing it at first.

    Examples
    --------
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: (2 * x).add_(1))(torch.ones(3))
    >>> without_writes(graph), graph(torch.ones(3)).tolist()
    (True, [3.0, 3.0, 3.0])
    """
    origin: dict[Node, Node] = {}
    for node in graph.graph.nodes:
        origin[node] = origin[source] if (source := seen_through(node)) is not None else node
    writing = [
        node
        for node in graph.graph.nodes
        if isinstance(node.target, OpOverload) and schema(node.target).is_mutable and not is_random(node.target)
    ]
    return all(_rewritten(graph, node, origin) for node in writing)


def seen_through(node: Node) -> Node | None:
    """Return the node whose memory a node shares: it is a view of it, one of several, or what was written into it."""
    if node.target is operator.getitem:
        return node.args[0] if isinstance(node.args[0], Node) else None
    if not isinstance(node.target, OpOverload):
        return None
    shares = any(result.alias_info is not None for result in schema(node.target).returns)
    return node.args[0] if shares and node.args and isinstance(node.args[0], Node) else None


def _rewritten(graph: GraphModule, node: Node, origin: dict[Node, Node]) -> bool:
    """Let a node return a new tensor, which all later nodes take in place of the one it wrote into."""
    written, target = node.args[0], _returning_new(node)
    if not isinstance(written, Node) or target is None or origin[node].op != "call_function":
        return False
    earlier = (each for each in origin if origin[each] is origin[node] and each is not written and each < node)
    if any(user > node for each in earlier for user in each.users):
        return False
    with graph.graph.inserting_before(node):
        new = graph.graph.call_function(target, node.args, node.kwargs)
    new.meta, origin[new] = dict(node.meta), new
    node.replace_all_uses_with(new)
    written.replace_all_uses_with(new, lambda user: user > node)
    del origin[node]
    graph.graph.erase_node(node)
    return True


def _returning_new(node: Node) -> Any:
    """Return the operation that gives the same values in a new tensor, or None: it may have another type or shape."""
    operation: Any = node.target
    namespace, _, name = schema(operation).name.partition("::")
    found = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    if not name.endswith("_") or found is None or overload_name(operation) not in found.overloads():
        return None
    target = getattr(found, overload_name(operation))
    is_large = any(source.meta["val"].is_meta for source in node.all_input_nodes)

    def stand_in(source: Node) -> Tensor:
        value: Tensor = source.meta["val"]
        # of the same type and number of dimensions; operations on torch's own stand-ins import its compiler
        return torch.zeros([min(size, 1) for size in value.shape], dtype=value.dtype) if is_large else value

    args, kwargs = cast(tuple[Any, Any], map_arg((node.args, node.kwargs), stand_in))
    with torch.no_grad():
        result, written = target(*args, **kwargs), args[0]
    alike = isinstance(result, Tensor) and result.shape == written.shape and result.dtype == written.dtype
    return target if alike else None
