"""The distribution of an observed site in the shape of what it observes."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions import ExpandedDistribution
from torch import Tensor
from torch.distributions import MixtureSameFamily

from bnnzoo.core.data.arguments import leaves
from bnnzoo.core.types import Data

__all__ = ["broadcast_to_rows", "broadcast_to_value"]


def broadcast_to_value(distribution: Any, value: Any) -> Any:
    """Return a distribution whose batch shape is that of its log density at ``value[*batch, *event]``.

    One distribution of many values, such as ``Normal(mu, sigma)`` in a plate without a size, has a log density for each of
    them, but one mean, one draw and the curvature of one observation. It is expanded wherever the values alone have the shape
    of the log density; where the distribution has the larger one, the model repeats its values, and is left as it is.

    Examples
    --------
    >>> import torch
    >>> import pyro.distributions as dist
    >>> broadcast_to_value(dist.Normal(0.0, 1.0), torch.zeros(3)).batch_shape
    torch.Size([3])
    """
    distribution = _with_weights_of_each(distribution)
    if not isinstance(value, Tensor):
        return distribution
    return _expanded(distribution, value.shape[: value.ndim - len(distribution.event_shape)])


def broadcast_to_rows(distribution: Any, plates: Iterable[Any], data: Data) -> Any:
    """Return the distribution of values that are not known: in a plate without a size there is one for each row of the data.

    Parameters
    ----------
    distribution : Distribution
    plates : iterable
        Pyro's records of the plates around the site.
    data : tuple
        Arguments of the model. Where those that have rows differ in their number, the distribution is left as it is.
    """
    distribution = _with_weights_of_each(distribution)
    parts = [value for argument in data for _, value in leaves("", argument)]
    lengths = {len(value) for value in parts if isinstance(value, Tensor) and value.ndim}
    dims = [plate.dim for plate in plates if plate.size == -1 and plate.dim is not None]
    if len(lengths) != 1 or not dims:
        return distribution
    batch = tuple(distribution.batch_shape)
    wanted = [1] * (max(len(batch), -min(dims)) - len(batch)) + list(batch)
    for dim in dims:
        if wanted[dim] == 1:
            wanted[dim] = min(lengths)
    return _expanded(distribution, tuple(wanted))


def _with_weights_of_each(distribution: Any) -> Any:
    """Return a mixture whose weights have the shape of its components': torch has a density of others, but no draws."""
    if not isinstance(distribution, MixtureSameFamily):
        return distribution
    weights, shape = distribution.mixture_distribution, distribution.component_distribution.batch_shape[:-1]
    if weights.batch_shape == shape:
        return distribution
    return dist.MixtureSameFamily(weights.expand(shape), distribution.component_distribution, validate_args=False)


def _expanded(distribution: Any, shape: tuple[int, ...]) -> Any:
    wanted = torch.Size(shape)
    try:
        found = np.broadcast_shapes(distribution.batch_shape, wanted)  # torch's imports a computer algebra system
    except ValueError:  # the log density will say so
        return distribution
    if wanted == distribution.batch_shape or found != tuple(wanted):
        return distribution
    try:
        return distribution.expand(wanted)
    except NotImplementedError:  # a family that does not say how it is expanded
        return ExpandedDistribution(distribution, wanted)
