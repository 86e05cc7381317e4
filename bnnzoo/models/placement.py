"""Moving distributions to the device on which the model runs."""

import copy
from typing import Any

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, Transform

__all__ = ["place"]


def place(distribution: TorchDistributionMixin) -> TorchDistributionMixin:
    """Return the same distribution with its parameters on torch's current default device.

    A hyperprior is created together with its prior, but the model may run on another device, which is torch's default device
    inside the model. Distributions that are created inside the model are there already.

    Parameters
    ----------
    distribution : Distribution
        Left unchanged.

    Returns
    -------
    Distribution

    Examples
    --------
    >>> import torch
    >>> import pyro.distributions as dist
    >>> hyperprior = dist.Gamma(2.0, 1.0)
    >>> with torch.device("meta"):
    ...     place(hyperprior).rate.device.type
    'meta'
    """
    placed: TorchDistributionMixin = _moved(distribution, torch.get_default_device())
    return placed


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, list):
        return type(value)([_moved(item, device) for item in value])
    if not isinstance(value, Distribution | Transform):
        return value
    new = copy.copy(value)
    vars(new).update({name: _moved(part, device) for name, part in vars(value).items()})
    return new
