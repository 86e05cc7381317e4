"""Largest curvature of a function of many parameters, which limits the steps of gradient methods."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Gradient", "difference", "largest_curvature"]

type Gradient = Callable[[Tensor], Tensor]

NUM_ITERATIONS = 8
"""Differences of gradients from which the largest eigenvalue of the Hessian is estimated."""


def largest_curvature(gradient: Gradient, theta: Tensor, scale: Tensor, start: Tensor) -> Tensor:
    """Return the size of the largest eigenvalue of the Hessian in units of ``scale[C, P]``, ``[C]``, by power iteration.

    Parameters
    ----------
    gradient : callable
        ``theta[C, P] -> [C, P]``, the same function at each call.
    theta, scale, start : Tensor [C, P]
        Where, in which units, and in which direction to begin.
    """
    here, size, tiny = gradient(theta), difference(theta), torch.finfo(theta.dtype).tiny
    direction, length = start, start.norm(dim=1, keepdim=True)
    for _ in range(NUM_ITERATIONS):
        along = scale * direction / length.clamp(min=tiny)
        step = size / along.abs().amax(1, keepdim=True).clamp(min=tiny)
        direction = scale * (gradient(theta + step * along) - here) / step
        length = direction.norm(dim=1, keepdim=True)
    return length.squeeze(1)


def difference(theta: Tensor) -> float:
    """Return the step of a difference of gradients at which rounding and curvature do equal harm."""
    return float(torch.finfo(theta.dtype).eps ** (1 / 3))
