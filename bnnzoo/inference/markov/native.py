"""What chains in native code share, however they move: the gradient as a graph."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.core.density import LogDensity
from bnnzoo.engine import pytree
from bnnzoo.engine.lowered import value_and_grad_of
from bnnzoo.engine.stretches import Inner, inner_graph, kinds_of

__all__ = ["Gradient", "gradient_of"]


class Gradient(NamedTuple):
    """``graph(*constants, theta[P], *tensors) -> (log joint [], gradient [P])``, and its arguments besides theta."""

    inner: Inner
    tensors: Sequence[Tensor]

    @property
    def graph(self) -> GraphModule:
        """The graph."""
        return self.inner.graph

    @property
    def constants(self) -> Sequence[Tensor]:
        """Its first arguments."""
        return self.inner.constants


def gradient_of(density: LogDensity) -> Gradient | None:
    """Return the gradient of a log density at one point as a graph, or None where it cannot be traced, or may raise."""
    leaves, spec = pytree.tree_flatten(density.data)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def value_and_grad(theta: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        values = dict(zip(places, tensors, strict=True))
        data = pytree.tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        return value_and_grad_of(lambda leaf: density.log_joint(leaf, *data), theta)

    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    tensors = [leaves[i].detach() for i in places]
    inputs = [theta, *tensors]
    found = density.shared(("gradient alone", kinds_of(inputs)), lambda: inner_graph(value_and_grad, inputs))
    return None if found is None else Gradient(found, tensors)
