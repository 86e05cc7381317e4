"""What chains in native code share, however they move: the gradient as a graph, the length of stretches, and when it pays."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from bnnzoo.core.density import LogDensity
from bnnzoo.lowering.compiling import LoweringWarning, for_compiling
from bnnzoo.lowering.failures import may_raise
from bnnzoo.lowering.graphs import lift_constants, trace

__all__ = ["FIRST_BUDGET", "Gradient", "compiled_or_none", "gradient_of", "next_budget"]

SECONDS_PER_STRETCH = 0.1
"""Time that a stretch should take: interrupts and progress bars wait for its end."""

FIRST_BUDGET, MAX_GROWTH = 64, 4


class Gradient(NamedTuple):
    """``graph(*constants, theta[P], *tensors) -> (log joint [], gradient [P])``, and its arguments besides theta."""

    graph: GraphModule
    constants: Sequence[Tensor]
    tensors: Sequence[Tensor]


def gradient_of(density: LogDensity) -> Gradient | None:
    """Return the gradient of a log density at one point as a graph, or None where it cannot be traced, or may raise."""
    leaves, spec = pytree.tree_flatten(density.data)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def value_and_grad(theta: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        values = dict(zip(places, tensors, strict=True))
        data = pytree.tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        gradient, value = grad_and_value(density.log_joint)(theta, *data)
        return value, gradient

    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    try:
        graph, _ = trace(value_and_grad, [theta, *(leaves[i].detach().clone() for i in places)])
        if may_raise(graph):  # out of the middle of a chain, whose state would be lost
            return None
        for_compiling(graph)
        return Gradient(graph, lift_constants(graph), [leaves[i].detach() for i in places])
    except Exception:  # a model may fail to trace in any way; the loop in Python says what to change
        return None


@runtime_checkable
class _Native(Protocol):
    def is_native(self) -> bool: ...


def compiled_or_none[N: _Native](gradient: Gradient | None, make: Callable[[Gradient], N]) -> N | None:
    """Return chains in native code, or None where they cannot be compiled: graphs run from Python would be slower."""
    if gradient is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoweringWarning)  # the loop that takes over warns if it is slow, too
        try:
            found = make(gradient)
            return found if found.is_native() else None
        except Exception:  # a compiler may fail in any way, and the fit goes on without it
            return None


def next_budget(budget: int, num_steps: int, seconds: float) -> int:
    """Return the number of steps of the next stretch, after one in which ``num_steps`` took so many seconds."""
    return max(1, min(int(num_steps * SECONDS_PER_STRETCH / seconds), budget * MAX_GROWTH))
