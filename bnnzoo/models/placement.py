"""Moving distributions to where the model runs."""

import copy
from typing import Any

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, Transform

__all__ = ["place"]


def place(distribution: TorchDistributionMixin) -> TorchDistributionMixin:
    """The same distribution with its parameters on torch's current default device.

    A hyperprior is made when a prior is made, a model may run on another device: inside the model, torch's default
    device says on which. Distributions that models make themselves are there already.

    Parameters
    ----------
    distribution : Distribution
        It is not changed.

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
