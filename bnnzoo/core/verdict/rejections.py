"""Summary of points rejected because the model cannot be evaluated there."""

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.log_joints import log_joint_at
from bnnzoo.core.program.numerics import Failure

__all__ = ["nearest_failure", "why_rejected"]

NUM_DIRECTIONS = 8
DISTANCES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""How far from the draws to look, in standard deviations, and in units of the parameters where a posterior is narrow."""


def why_rejected(density: LogDensity, draws: Tensor, num_rejected: int) -> str:
    """Return how the model fails where it does nearest to the draws ``[..., P]``, as a clause; empty if nothing was rejected.

    Fits of one kind share the answer: the search takes as long as a short chain.
    """
    if not num_rejected:
        return ""
    failure = (
        density.shared("nearest failure", lambda: nearest_failure(density, draws))
        if density.is_one_of_many
        else nearest_failure(density, draws)
    )
    return "" if failure is None else str(failure)


def nearest_failure(density: LogDensity, draws: Tensor) -> Failure | None:
    """Return how the model fails at a point near the draws ``[..., P]``, None if none is found.

    Points that a fit proposes are not kept. The ones tried here lie in random directions at growing distances.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> from bnnzoo.core.model.density import build_density
    >>> def model():
    ...     z = pyro.sample("z", dist.Normal(1.0, 0.1))
    ...     pyro.factor("root", z.sqrt())
    >>> str(nearest_failure(build_density(model), torch.ones(10, 1)))
    "site 'root' has log probability nan"
    """
    flat = draws.detach().reshape(-1, draws.shape[-1])
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(DISTANCES), NUM_DIRECTIONS, flat.shape[1], generator=generator, dtype=torch.float64).to(
        flat
    )
    centre, spread = flat.mean(0), flat.std(0, unbiased=False)
    scales = torch.stack([spread, torch.ones_like(spread)])
    for distance, directions in zip(DISTANCES, noise, strict=True):
        points = centre + distance * (directions[:, None] * scales).flatten(0, 1)
        for point in points[log_joint_at(density, points).isinf()]:
            failure = density.failure(point, *density.data)
            if failure is not None:
                return failure
    return None
