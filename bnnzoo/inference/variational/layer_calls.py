"""The calls of a network's layers in one run of a model, and which layer's output is which layer's input."""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.network import Network

__all__ = ["LayerCall", "calls_of", "is_weighted", "rate_of", "source_of", "targets_of"]

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
# Layers that turn a multiple of a channel into the same multiple of what they make of it, if it is not negative.
SCALING = (
    nn.Identity, nn.Flatten, nn.ReLU, nn.LeakyReLU, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d,
    nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LayerCall:
    """One call of a layer without layers inside it.

    Attributes
    ----------
    network : Network
    path : str
        Of the layer in the network.
    layer : Module
    number : int
        How many calls of the same layer came before.
    input, output : Tensor
    """

    network: Network
    path: str
    layer: nn.Module
    number: int
    input: Tensor
    output: Tensor

    @property
    def name(self) -> str:
        """Name of the layer with that of its network, and the number of a further call."""
        name = f"{self.network.name}.{self.path}" if self.path else self.network.name
        return f"{name}[{self.number}]" if self.number else name


def is_weighted(layer: nn.Module) -> bool:
    """Whether a layer is linear in its weights: fully connected or a convolution."""
    return isinstance(layer, WEIGHTED)


def rate_of(layer: nn.Module) -> float:
    """Return the rate of a dropout layer, 0 for any other."""
    return float(layer.p) if isinstance(layer, DROPOUT) else 0.0


def calls_of(density: LogDensity) -> list[LayerCall]:
    """Run the model once and return the calls of its networks' layers in their order."""
    calls: list[LayerCall] = []
    counts: Counter[tuple[int, str]] = Counter()

    def note(network: Network, path: str, layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            key = id(network), path
            # kept alive: addresses stay unique
            calls.append(LayerCall(network, path, layer, counts[key], args[0], output))
            counts[key] += 1

    with ExitStack() as stack, torch.no_grad():
        for network in density.networks:
            for path, layer in network.module.named_modules():
                if next(layer.children(), None) is None:
                    stack.callback(layer.register_forward_hook(partial(note, network, path)).remove)
        theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
        density.nodes(theta, *density.data)
    return calls


def targets_of(call: LayerCall, calls: list[LayerCall]) -> list[LayerCall]:
    """Return the layers with weights whose input is a call's output, directly or through layers that keep its scale.

    The list is empty if something else uses that output, too.
    """
    later = calls[calls.index(call) + 1 :]
    fed = [each for each in later if _same(each.input, call.output) and not _same(each.output, call.output)]
    found: list[LayerCall] = []
    for each in fed:
        beyond = (
            [each] if is_weighted(each.layer) else targets_of(each, calls) if isinstance(each.layer, SCALING) else []
        )
        if not beyond:
            return []
        found += beyond
    return found


def source_of(call: LayerCall, calls: list[LayerCall]) -> LayerCall | None:
    """Return the layer with weights whose output a call takes as it is."""
    for each in reversed(calls[: calls.index(call)]):
        if _same(each.output, call.input) and not _same(each.input, each.output):
            return each if is_weighted(each.layer) else None
    return None


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are views of the same memory, such as an image and its flattened form."""
    return a.data_ptr() == b.data_ptr() and a.numel() == b.numel()
