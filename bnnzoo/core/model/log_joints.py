"""Log joint densities at many points, some of which a model may not be computed at."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.engine.choose import CALLS_OF_THE_LOG_JOINT

__all__ = ["log_joint_as_graph", "log_joint_at", "log_joint_of_some"]

DRAWS_ONE_BY_ONE = 300  # of a model that cannot be batched
SMALL_BLOCK = 32  # points that are evaluated one by one where they cannot be together
VALUES_AT_A_TIME = 10**6  # draws times rows that are evaluated at a time: a model may have many values for each


def log_joint_at(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the log joint density ``[S]`` of ``theta[S, P]``, without gradients, minus infinity where it cannot be computed."""
    with torch.no_grad(), isolated(0, density.device):
        return _or_minus_infinity(_in_blocks(density, theta))


def log_joint_as_graph(density: LogDensity, most: int) -> Callable[[Tensor], Tensor]:
    """Return :func:`log_joint_at` for a loop of calls at up to ``most`` points each, in which the model need not run."""
    if density.is_one_of_many or most * max(1, density.num_data) > VALUES_AT_A_TIME:
        return partial(log_joint_at, density)
    graph = density.over_points(("log joint", most), density.log_joint, num_calls=0, most=most)
    return lambda theta: _or_minus_infinity(graph(theta, *density.data))


def log_joint_of_some(density: LogDensity, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log joint density ``[S]`` and where it was computed, which are fewer draws if they cannot be batched."""
    found = _batched(density, theta)
    if found is not None:
        return theta, found
    few = theta[:: -(-len(theta) // DRAWS_ONE_BY_ONE)]
    return few, torch.stack([_of_one(density, row) for row in few])


def _batched(density: LogDensity, theta: Tensor) -> Tensor | None:
    """Return the log joint density ``[S]`` of all points at once; None if they cannot be batched."""
    at_once = max(1, VALUES_AT_A_TIME // max(1, density.num_data))
    try:
        log_joint = density.over_points(
            "log joint", density.log_joint, num_calls=CALLS_OF_THE_LOG_JOINT, chunk_size=at_once, randomness="same"
        )
        return log_joint(theta, *density.data)
    except Exception:  # the model's own code may raise anything where it cannot be batched
        return None


def _in_blocks(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the log joint density ``[S]``, one by one only in small blocks with points at which it cannot be computed."""
    found = _batched(density, theta)
    if found is not None:
        return found
    if len(theta) > SMALL_BLOCK:
        return torch.cat([_in_blocks(density, half) for half in theta.tensor_split(2)])
    return torch.stack([_of_one(density, row) for row in theta])


def _of_one(density: LogDensity, theta: Tensor) -> Tensor:
    try:
        return density.log_joint(theta, *density.data)
    except Exception:  # a factorisation that fails, an argument that leaves its support
        return theta.new_tensor(-math.inf)


def _or_minus_infinity(values: Tensor) -> Tensor:
    return values.nan_to_num(-math.inf, posinf=-math.inf, neginf=-math.inf)
