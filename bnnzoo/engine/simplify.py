"""Taking operations out of a traced graph that change nothing, such as the scale of one that a site does not have."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from bnnzoo.engine.torch_private import OpOverload, schema

__all__ = [
    "drop_dead",
    "drop_unused",
    "filled",
    "is_filled",
    "is_pure",
    "is_random",
    "is_seen_by_strides",
    "number_throughout",
    "share",
    "simplify",
    "spoil_failures",
]

aten = torch.ops.aten

FILLS: dict[Any, Callable[[tuple[Any, ...]], Any]] = {
    aten.zeros_like.default: lambda args: 0,
    aten.new_zeros.default: lambda args: 0,
    aten.ones_like.default: lambda args: 1,
    aten.new_ones.default: lambda args: 1,
    aten.full_like.default: lambda args: args[1],
    aten.new_full.default: lambda args: args[2],
}
"""Operations whose result depends on shapes alone, and the value it is filled with."""

BY_STRIDES = {aten.as_strided.default, aten.as_strided_scatter.default}

RESHAPES = {
    aten.reshape.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
}
SAME_IF_SAME_SHAPE = {aten.expand.default, aten.slice.Tensor, aten.alias.default, aten.detach.default}
NEUTRAL: dict[Any, tuple[float, bool]] = {
    aten.mul.Tensor: (1, True),
    aten.mul.Scalar: (1, False),
    aten.div.Tensor: (1, False),
    aten.add.Tensor: (0, True),
    aten.sub.Tensor: (0, False),
    aten.pow.Tensor_Scalar: (1, False),
}
"""The number that changes nothing as the second operand, and whether it may as well be the first."""
FLOATS = {torch.float32, torch.float64}


def is_filled(node: Node) -> bool:
    """Tell whether a node's result is one number throughout, whatever the graph's inputs."""
    return node.target in FILLS and not isinstance(_fill(node), Node)


def filled(node: Node) -> Tensor:
    """Return the result of such a node; it takes the memory of one number, unless an operation looks at its memory."""
    like = node.meta["val"]
    device = node.meta.get("device", like.device)
    if is_seen_by_strides(node):
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device).fill_(_fill(node))
    return torch.full((), _fill(node), dtype=like.dtype, device=device).expand(like.shape)


def is_seen_by_strides(node: Node) -> bool:
    """Tell whether an operation takes a node's entries by their places in memory, and not by their indices."""
    return any(user.target in BY_STRIDES for user in node.users)


def _fill(node: Node) -> Any:
    return FILLS[node.target](node.args)


def is_random(operation: Any) -> bool:
    """Tell whether an operation draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(operation, "tags", ())


def is_pure(operation: Any) -> bool:
    """Tell whether an operation gives equal results for equal arguments, and writes into none of them."""
    if not isinstance(operation, OpOverload):
        return operation is operator.getitem
    return not is_random(operation) and not schema(operation).is_mutable


def number_throughout(value: Tensor) -> Tensor | None:
    """Return the number ``[]`` that every entry of a tensor is, or None."""
    if not value.numel():
        return None
    number = value[(0,) * value.ndim]
    return number if bool((value == number).all()) else None


def drop_dead(graph: GraphModule) -> None:
    """Delete operations whose results nothing uses, in place; those that write or draw random numbers stay.

    For a graph of thousands of operations torch's own way takes ten times as long.
    """
    impure: dict[Any, bool] = {}
    for node in reversed(graph.graph.nodes):
        if not node.users and node.op in ("call_function", "get_attr"):
            if node.target not in impure:
                impure[node.target] = node.is_impure()
            if not impure[node.target]:
                graph.graph.erase_node(node)


def drop_unused(graph: GraphModule) -> None:
    """Delete unused constants, which every call of the compiled graph would otherwise pass."""
    used = {node.target for node in graph.graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in graph.named_buffers() if name not in used]:
        delattr(graph, name)


def spoil_failures(graph: GraphModule) -> None:
    """Let factorisations that fail return NaN, in place, where a check after them would end the run.

    Whoever proposed the point then sees a log density that is not a number, and rejects it.
    """
    for check in [node for node in graph.graph.nodes if node.target is aten._linalg_check_errors.default]:
        info: Any = check.args[0]
        for result in [node for node in info.args[0].users if node is not info]:
            if result.meta["val"].dtype in FLOATS:
                _spoil(graph, result, info)
        graph.graph.erase_node(check)


def _spoil(graph: GraphModule, result: Node, info: Node) -> None:
    value, failed = result.meta["val"], info.meta["val"] != 0
    with graph.graph.inserting_after(info if info > result else result):
        bad = graph.graph.call_function(aten.ne.Scalar, (info, 0))
    shape = [*failed.shape, *(1,) * (value.ndim - failed.ndim)]
    with graph.graph.inserting_after(bad):
        bad_entries = graph.graph.call_function(aten.reshape.default, (bad, shape))
    with graph.graph.inserting_after(bad_entries):
        spoilt = graph.graph.call_function(aten.masked_fill.Scalar, (result, bad_entries, float("nan")))
    bad.meta["val"], bad_entries.meta["val"], spoilt.meta["val"] = failed, failed.reshape(shape), value
    result.replace_all_uses_with(spoilt, lambda user: user is not spoilt)


def share(graph: GraphModule) -> None:
    """Evaluate once, in place, what stands more than once in a graph; random operations stay as they are.

    So do graphs that write into their tensors.
    """
    if _writes(graph):
        return
    first: dict[Any, Node] = {}
    for node in list(graph.graph.nodes):
        if node.op == "get_attr" or (node.op == "call_function" and is_pure(node.target)):
            kept = first.setdefault((node.target, _key(node.args), _key(node.kwargs)), node)
            if kept is not node:
                node.replace_all_uses_with(kept)
                graph.graph.erase_node(node)


def _key(argument: Any) -> Any:
    """Return an argument as something to compare: 1, 1.0 and True are not the same to an operation."""
    if isinstance(argument, list | tuple):
        return tuple(_key(each) for each in argument)
    if isinstance(argument, dict):
        return tuple((name, _key(each)) for name, each in argument.items())
    return argument if isinstance(argument, Node) else (type(argument), repr(argument))


def _writes(graph: GraphModule) -> bool:
    return any(isinstance(node.target, OpOverload) and schema(node.target).is_mutable for node in graph.graph.nodes)


def simplify(graph: GraphModule) -> None:
    """Take out, in place, whatever changes nothing; graphs that write into their tensors are left as they are.

    Every node needs the tensor it stands for in its metadata, as tracing leaves it there. Results stay the same to the bit.
    """
    if _writes(graph):
        return
    for node in list(graph.graph.nodes):
        if node.op == "call_function":
            # a cheaper node, old or new, that equals node, if there is one
            rule = RULES.get(node.target)
            kept = None if rule is None else rule(graph, node)
        else:
            kept = None
        if kept is not None and not (kept.op == "placeholder" and any(user.op == "output" for user in node.users)):
            node.replace_all_uses_with(kept)
            graph.graph.erase_node(node)
    for node in graph.graph.nodes:
        if node.target not in NEUTRAL or len(node.args) != 2 or node.meta["val"].dtype not in FLOATS:
            continue
        # a constant operand that is one number throughout becomes that number, which need not be fetched from memory
        first, second = node.args
        value = _number(graph, second)
        if value is not None and _alike(first, node):
            node.args = (first, value)
        elif NEUTRAL[node.target][1] and _alike(second, node) and (value := _number(graph, first)) is not None:
            node.args = (second, value)
    drop_dead(graph)


def _number(graph: GraphModule, operand: Any) -> float | None:
    """Return the number that a constant is throughout, if it is."""
    if not isinstance(operand, Node) or operand.op != "get_attr":
        return None
    number = number_throughout(getattr(graph, str(operand.target)))
    return None if number is None else float(number)


def _reshaped(graph: GraphModule, node: Node) -> Node | None:
    """See a chain of changes of shape as one, from where it starts."""
    source: Any = node.args[0]
    while source.target in RESHAPES:
        source = source.args[0]
    if _alike(source, node):
        return _node(source)
    return None if source is node.args[0] else _reshape(graph, node, source)


def _summed(graph: GraphModule, node: Node) -> Node | None:
    """See a sum over single entries as a change of shape."""
    source: Any = node.args[0]
    shape, dims = source.meta["val"].shape, node.args[1]
    if not dims or any(shape[dim] != 1 for dim in dims) or source.meta["val"].dtype != node.meta["val"].dtype:  # type: ignore[union-attr]
        return None
    new = _reshape(graph, node, source)
    return _reshaped(graph, new) or new


def _reshape(graph: GraphModule, node: Node, source: Node) -> Node:
    with graph.graph.inserting_before(node):
        new = graph.graph.call_function(aten.reshape.default, (source, list(node.meta["val"].shape)))
    new.meta["val"] = node.meta["val"]
    return new


def _permuted(graph: GraphModule, node: Node) -> Node | None:
    order: Any = node.args[1]
    return _node(node.args[0]) if list(order) == list(range(len(order))) else None


def _of_same_shape(graph: GraphModule, node: Node) -> Node | None:
    return _node(node.args[0]) if _alike(node.args[0], node) else None


def _with_neutral(graph: GraphModule, node: Node) -> Node | None:
    number, commutes = NEUTRAL[node.target]
    first, second = node.args[:2]
    if _is_number(graph, second, number) and _alike(first, node):
        return _node(first)
    return _node(second) if commutes and _is_number(graph, first, number) and _alike(second, node) else None


def _is_number(graph: GraphModule, operand: Any, number: float) -> bool:
    """Tell whether an operand is known to be ``number`` throughout."""
    if not isinstance(operand, Node):
        return bool(operand == number)
    if operand.op != "get_attr":
        return False
    return bool((getattr(graph, str(operand.target)) == number).all())


def _alike(a: Any, b: Node) -> bool:
    """Tell whether two nodes stand for tensors of one shape and type."""
    if not isinstance(a, Node) or "val" not in a.meta:
        return False
    left, right = a.meta["val"], b.meta["val"]
    return left.shape == right.shape and left.dtype == right.dtype


def _node(found: Any) -> Node | None:
    return found if isinstance(found, Node) else None


RULES: dict[Any, Callable[[GraphModule, Node], Node | None]] = {
    aten.sum.dim_IntList: _summed,
    aten.permute.default: _permuted,
    **dict.fromkeys(RESHAPES, _reshaped),
    **dict.fromkeys(SAME_IF_SAME_SHAPE, _of_same_shape),
    **dict.fromkeys(NEUTRAL, _with_neutral),
}
