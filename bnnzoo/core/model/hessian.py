"""The Hessian of a log joint density."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.points import Points

__all__ = ["hessian_of", "in_double"]

CALLS = 12
"""Hessians on the way to a mode, and there."""


def in_double(density: LogDensity) -> LogDensity:
    """Return a density and its data in double precision; others than those of a model may hold values of a fit, and stay."""
    if type(density) is not LogDensity:
        return density
    data = tuple(v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for v in density.data)
    return replace(density, dtype=torch.float64, data=data)


def hessian_of(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the Hessian ``[P, P]`` of the log joint density at ``theta[P]``, of many fits of one kind by what they share."""

    def at(theta: Tensor, *data: Any) -> Tensor:
        def log_joint(point: Tensor) -> Tensor:
            return density.log_joint(point, *data)

        # Reverse mode twice: in forward mode torch promotes single precision to double halfway.
        _, transposed = vjp(grad(log_joint), theta)[:2]
        (found,) = vmap(transposed, chunk_size=64)(torch.eye(len(theta), dtype=theta.dtype, device=theta.device))
        return found.detach()

    if not density.is_one_of_many:
        return at(theta, *density.data)
    in_dims = (0, *(None for _ in density.data))
    points: Points = density.shared("hessian", lambda: Points(at, vmap(at, in_dims=in_dims), CALLS))
    found: Tensor = points(theta[None], *density.data)[0]
    return found
