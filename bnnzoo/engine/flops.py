"""Multiplications and additions in the matrix products and convolutions of a graph."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter

__all__ = ["flops_of"]

aten = torch.ops.aten


def flops_of(graph: GraphModule, inputs: list[Tensor]) -> int:
    """Return how many multiplications and additions a graph takes, found in one run of it.

    Torch's own counter imports a compiler of GPU kernels, which takes a fifth of the time of importing this package.

    Examples
    --------
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x, w: (x @ w).sum())(torch.ones(3, 4), torch.ones(4, 5))
    >>> flops_of(graph, [torch.ones(3, 4), torch.ones(4, 5)])
    120
    """
    counting = _Counting(graph)
    with torch.no_grad():
        counting.run(*inputs)
    return 2 * counting.products


class _Counting(Interpreter):
    products = 0

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = super().call_function(target, args, kwargs)
        self.products += _products(target, args, found)
        return found


def _products(target: Any, args: tuple[Any, ...], found: Any) -> int:
    if target in (aten.mm.default, aten.bmm.default):
        return int(found.numel() * args[0].shape[-1])
    if target in (aten.addmm.default, aten.baddbmm.default):
        return int(found.numel() * args[1].shape[-1])
    if target == aten.convolution.default:
        inputs, weight, is_transposed = args[0], args[1], args[6]
        return int((inputs if is_transposed else found).numel() * weight[0].numel())
    if target == aten.convolution_backward.default:
        gradient, inputs, weight, is_transposed = *args[:3], args[7]
        wanted = sum(args[10][:2])  # the gradients of inputs and of weights take as much as the convolution each
        return int(wanted * (inputs if is_transposed else gradient).numel() * weight[0].numel())
    return 0
