"""The integrated autocorrelation time: how many iterations apart draws of a chain are nearly independent."""

import torch
from torch import Tensor

from bnnzoo.core.mixing import autocovariance

__all__ = ["autocorrelation_time"]


def autocorrelation_time(draws: Tensor) -> Tensor:
    """Return the integrated autocorrelation time ``[D]`` of chains ``draws[C, S, D]``, in iterations.

    Autocorrelations within chains are averaged over chains and summed as long as the sums of adjacent pairs stay positive
    (Geyer 1992).

    Examples
    --------
    >>> import torch
    >>> noise = torch.randn(4, 2000, 1, generator=torch.Generator().manual_seed(0))
    >>> round(float(autocorrelation_time(noise)))
    1
    """
    size = draws.shape[1]
    covariance = autocovariance(draws)
    correlation = covariance / covariance[0].clamp(min=torch.finfo(draws.dtype).tiny)
    pairs = correlation[: 2 * (size // 2)].unflatten(0, (-1, 2)).sum(1)
    positive = (pairs > 0).long().cumprod(0)
    return (2 * (pairs * positive).sum(0) - 1).clamp(min=1.0)
