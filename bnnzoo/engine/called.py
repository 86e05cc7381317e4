"""Traced graphs as they are called from Python, operation by operation."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from bnnzoo.engine.torch_private import graph_module, written_when_called

__all__ = ["FUNCTIONS", "as_called"]

aten = torch.ops.aten

_OF_TORCH = (
    *(
        "abs.default",
        "add.Tensor",
        "addmm.default",
        "amax.default",
        "amin.default",
        "any.default",
        "any.dim",
        "atan.default",
    ),
    *("bitwise_and.Tensor", "bitwise_not.default", "bitwise_or.Tensor", "bmm.default", "ceil.default", "clamp.default"),
    *("clamp_max.default", "clamp_min.default", "clone.default", "cos.default", "cumsum.default", "diagonal.default"),
    *(
        "digamma.default",
        "div.Tensor",
        "eq.Scalar",
        "eq.Tensor",
        "erf.default",
        "erfc.default",
        "exp.default",
        "expm1.default",
    ),
    *(
        "floor.default",
        "gather.default",
        "ge.Scalar",
        "ge.Tensor",
        "gt.Scalar",
        "gt.Tensor",
        "isnan.default",
        "le.Scalar",
    ),
    *("le.Tensor", "lgamma.default", "log.default", "log1p.default", "logical_and.default", "logical_not.default"),
    *("logical_or.default", "logsumexp.default", "lt.Scalar", "lt.Tensor", "masked_fill.Scalar", "maximum.default"),
    *(
        "mean.dim",
        "minimum.default",
        "mm.default",
        "mul.Tensor",
        "ne.Scalar",
        "ne.Tensor",
        "neg.default",
        "permute.default",
    ),
    *(
        "pow.Tensor_Scalar",
        "pow.Tensor_Tensor",
        "reciprocal.default",
        "relu.default",
        "reshape.default",
        "rsqrt.default",
    ),
    *("rsub.Scalar", "select.int", "sigmoid.default", "sign.default", "sin.default", "sqrt.default", "square.default"),
    *("squeeze.dim", "stack.default", "sub.Tensor", "sum.default", "sum.dim_IntList", "t.default", "tanh.default"),
    *(
        "transpose.int",
        "unsqueeze.default",
        "where.self",
        "xlogy.Tensor",
        "all.dim",
        "bitwise_and.Scalar",
        "cat.default",
    ),
    *(
        "bitwise_or.Scalar",
        "bitwise_xor.Scalar",
        "bitwise_xor.Tensor",
        "index_put.default",
        "logaddexp.default",
        "mul.Scalar",
    ),
    *("remainder.Scalar", "split_with_sizes.default", "unbind.int"),
)
_OF_TENSORS = ("expand.default", "view.default")


def _named(of: Any, names: tuple[str, ...]) -> dict[Any, Any]:
    pairs = (name.split(".") for name in names)
    return {getattr(getattr(aten, packet), overload): getattr(of, packet) for packet, overload in pairs}


FUNCTIONS: dict[Any, Any] = {**_named(torch, _OF_TORCH), **_named(Tensor, _OF_TENSORS)}
"""The function of torch that takes the arguments of an operation in the same order, and does the same with them.

Not all of them take None where the operation does.
"""


def as_called(graph: GraphModule) -> GraphModule:
    """Return a graph that calls torch's functions in place of single operations: they take half the time to be called.

    Examples
    --------
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: x.exp() + 1)(torch.zeros(2))
    >>> called = as_called(graph)
    >>> [node.target.__name__ for node in called.graph.nodes if node.op == "call_function"], called(torch.zeros(2)).tolist()
    (['exp', 'add'], [2.0, 2.0])
    """
    new, made = Graph(), dict[Node, Node]()
    for node in graph.graph.nodes:
        made[node] = new.node_copy(node, lambda each: made[each])
        if node.op == "call_function" and not _holds_none(node.args):
            made[node].target = FUNCTIONS.get(node.target, node.target)
    with written_when_called():
        return graph_module(graph, new)


def _holds_none(argument: Any) -> bool:
    return any(map(_holds_none, argument)) if isinstance(argument, list | tuple) else argument is None
