"""Writing into a traced graph the types that torch's default dtype had decided, which is another one when the graph runs."""

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from bnnzoo.engine.torch_private import OpOverload, schema

__all__ = ["with_explicit_dtypes"]


def with_explicit_dtypes(graph: GraphModule) -> None:
    """Name, in place, the dtype of every new tensor, and convert whole numbers and truth values from which others are computed.

    Every node needs the tensor it stands for in its metadata, as tracing leaves it there.

    Examples
    --------
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> x = torch.ones(2)
    >>> graph = make_fx(lambda x: x @ torch.eye(2))(x)
    >>> with_explicit_dtypes(graph)
    >>> _ = graph.recompile()
    >>> torch.set_default_dtype(torch.float64)
    >>> graph(x).dtype
    torch.float32
    >>> torch.set_default_dtype(torch.float32)
    """
    for node in list(graph.graph.nodes):
        value = node.meta.get("val")
        if not isinstance(node.target, OpOverload) or not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if any(argument.name == "dtype" for argument in schema(node.target).arguments):
            if node.kwargs.get("dtype") is None and not _has_fractions(node):
                node.kwargs = {**node.kwargs, "dtype": value.dtype}
        elif torch.Tag.pointwise in node.target.tags and not _has_fractions(node):
            conditions = node.args[:1] if node.target is torch.ops.aten.where.self else ()
            for source in [source for source in node.all_input_nodes if source not in conditions]:
                args, dtype = (source,), value.dtype
                with graph.graph.inserting_before(node):
                    converted = graph.graph.call_function(torch.ops.aten._to_copy.default, args, {"dtype": dtype})
                converted.meta["val"] = source.meta["val"].to(dtype)
                node.replace_input_with(source, converted)


def _has_fractions(node: Node) -> bool:
    """Tell whether a node takes real or complex numbers, which decide over the type of its result."""
    values = (source.meta.get("val") for source in node.all_input_nodes)
    return any(isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) for value in values)
