"""Curvature of the density along each parameter: the units in which stochastic-gradient chains take their steps."""

import torch
from torch import Tensor

from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured
from bnnzoo.inference.optimise.stiffness import Gradient, difference, largest_curvature

__all__ = ["NUM_PROBES", "measured", "probed_curvature", "scales_from"]

NUM_PROBES = 8
"""Differences of gradients from which rows of the Hessian are estimated."""

LOWEST = 1e-4
"""The curvature of a parameter counts as at least this part of the mean: a gradient that happens to be zero has no scale."""


def probed_curvature(gradient: Gradient, theta: Tensor, signs: Tensor) -> Tensor:
    r"""Return the root mean square of each row of the Hessian ``[C, P]``, from differences of gradients.

    .. math:: h_i^2 = E_z \, (H z)_i^2 = \sum_j H_{ij}^2, \qquad z \in \{-1, 1\}^P

    Parameters
    ----------
    gradient : callable
        ``theta[C, P] -> [C, P]``, the same function at each call.
    theta : Tensor [C, P]
    signs : Tensor [K, C, P]
        Random signs z.
    """
    here, size = gradient(theta), difference(theta)
    squares = torch.stack([(gradient(theta + size * z) - here) ** 2 for z in signs])
    return squares.mean(0).sqrt() / size


def measured(
    gradient: Gradient, theta: Tensor, curvature: Tensor, noise: Tensor, start: Tensor, *, scaled: bool
) -> Measured:
    """Return what is known around chains at ``theta[C, P]``, in units of their own where ``scaled``, else in those of the model.

    Parameters
    ----------
    gradient : callable
        ``theta[C, P] -> [C, P]``, the same function at each call.
    theta, curvature, noise : Tensor [C, P]
        Positions, mean squared gradients there, and the variance of their noise.
    start : Tensor [C, P]
        Random directions.
    scaled : bool
    """
    scale = scales_from(curvature) if scaled else torch.ones_like(curvature)
    return Measured(curvature, noise, scale, largest_curvature(gradient, theta, scale, start))


def scales_from(curvature: Tensor) -> Tensor:
    """Return the scale of each parameter ``[C, P]``: one over the root of its curvature."""
    usable = torch.where(curvature.isfinite(), curvature, curvature.nan_to_num(0.0, 0.0, 0.0).amax(1, keepdim=True))
    lowest = (LOWEST * usable.mean(1, keepdim=True)).clamp(min=torch.finfo(usable.dtype).tiny)
    return usable.clamp(min=lowest).rsqrt()
