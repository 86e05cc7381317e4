"""The Hessian of a log joint density."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.lowered import Lowered

__all__ = ["hessian_of", "in_double"]


def in_double(density: LogDensity) -> LogDensity:
    """Return a density and its data in double precision; others than those of a model may hold values of a fit, and stay."""
    if type(density) is not LogDensity:
        return density
    data = tuple(v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for v in density.data)
    return replace(density, dtype=torch.float64, data=data)


def hessian_of(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the Hessian ``[P, P]`` of the log joint density at ``theta[P]``, of many fits of one kind by one graph."""

    def at(theta: Tensor, *data: Any) -> Tensor:
        def log_joint(point: Tensor) -> Tensor:
            return density.log_joint(point, *data)

        # Reverse mode twice: in forward mode torch promotes single precision to double halfway.
        _, transposed = vjp(grad(log_joint), theta)[:2]
        (found,) = vmap(transposed, chunk_size=64)(torch.eye(len(theta), dtype=theta.dtype, device=theta.device))
        return found.detach()

    if not density.is_one_of_many:
        return at(theta, *density.data)
    graph: Lowered = density.shared("hessian", partial(Lowered, at))
    found: Tensor = graph(theta, *density.data)
    return found
