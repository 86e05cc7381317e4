"""The Hessian of a log joint density."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.choose import CALLS_OF_HESSIANS
from bnnzoo.engine.points import Points
from bnnzoo.engine.value_and_grad import hessian_products

__all__ = ["hessian_of", "hessians_of", "in_double"]

COLUMNS_AT_A_TIME, VALUES_AT_A_TIME = 64, 2**20
"""Columns of a Hessian that are computed together, and observations, each column counted, of several Hessians."""


def in_double(density: LogDensity) -> LogDensity:
    """Return a density and its data in double precision; others than those of a model may hold values of a fit, and stay."""
    if type(density) is not LogDensity:
        return density
    data = tuple(v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for v in density.data)
    return replace(density, dtype=torch.float64, data=data)


def hessian_of(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the Hessian ``[P, P]`` of the log joint density at ``theta[P]``."""
    return hessians_of(density, theta[None])[0]


def hessians_of(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the Hessians ``[M, P, P]`` of the log joint density at ``theta[M, P]``, in many fits by what they share."""
    together = max(1, VALUES_AT_A_TIME // max(1, density.num_data * min(theta.shape[1], COLUMNS_AT_A_TIME)))

    def at(theta: Tensor, *data: Any) -> Tensor:
        product = hessian_products(lambda point: density.log_joint(point, *data), theta)
        columns = torch.eye(len(theta), dtype=theta.dtype, device=theta.device)
        found: Tensor = vmap(product, chunk_size=COLUMNS_AT_A_TIME)(columns)
        return found.detach()

    def batched(theta: Tensor, *data: Any) -> Tensor:
        found: Tensor = vmap(at, in_dims=(0, *(None for _ in data)), chunk_size=together)(theta, *data)
        return found

    if not density.is_one_of_many:
        return at(theta[0], *density.data)[None] if len(theta) == 1 else batched(theta, *density.data)
    found: Tensor = density.shared("hessian", lambda: Points(at, batched, CALLS_OF_HESSIANS))(theta, *density.data)
    return found
