"""The Hessian of a log joint density."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from bnnzoo.core.density import LogDensity
from bnnzoo.engine.lowered import Lowered

__all__ = ["hessian_of"]


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
