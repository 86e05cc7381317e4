"""Which arguments of a model hold the values of its observed sites."""

import torch
from torch import Tensor

from bnnzoo.core.density import LogDensity

__all__ = ["observed_places"]


def observed_places(density: LogDensity) -> dict[int, str]:
    """Return which arguments of the model hold the values of observed sites, by their places, and of which.

    Examples
    --------
    >>> from bnnzoo.core.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> observed_places(build_density(target.model, *target.data))
    {1: 'y'}
    """
    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    with torch.no_grad():
        nodes = density.nodes(theta, *density.data)
    values = {name: nodes[name]["value"] for name in density.observed}
    return {
        place: name
        for place, value in enumerate(density.data)
        for name, y in values.items()
        if isinstance(value, Tensor) and value.numel() == y.numel() and bool((value.flatten() == y.flatten()).all())
    }
