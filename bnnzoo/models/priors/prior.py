"""The interface of a prior: a callable that `bnnzoo.random_module` calls once per parameter."""

from typing import Protocol, runtime_checkable

import pyro.distributions as dist
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

__all__ = ["Prior", "independent", "zero_mean_normal"]


@runtime_checkable
class Prior(Protocol):
    """A prior on the parameters of a network: one distribution per parameter.

    Write a frozen dataclass with ``__call__``: unlike a lambda, it can be sent to other processes and prints its
    settings.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import pyro.distributions as dist
    >>> import torch
    >>> @dataclass(frozen=True)
    ... class Cauchy:
    ...     scale: float
    ...     def __call__(self, site_name, parameter, fan_in):
    ...         return dist.Cauchy(0.0, self.scale).expand(parameter.shape).to_event(parameter.ndim)
    >>> Cauchy(2.0)("net.0.weight", torch.zeros(50, 3), fan_in=3).event_shape
    torch.Size([50, 3])
    """

    def __call__(self, site_name: str, parameter: Tensor, fan_in: int) -> TorchDistributionMixin:
        """Return the prior of one parameter.

        Parameters
        ----------
        site_name : str
            Name of the parameter's latent site, ``"net.0.weight"``.
        parameter : Tensor
            The parameter; use only its shape and ndim.
        fan_in : int
            Number of inputs summed into one output unit of the layer (``in_features``; input channels per group
            times kernel size); for a bias, that of its layer's weight; 1 for layers without a weight matrix.

        Returns
        -------
        Distribution
            With batch shape ``()`` and event shape ``parameter.shape``.
        """
        ...


def zero_mean_normal(scale: Tensor | float) -> TorchDistributionMixin:
    """Return a zero-mean normal with standard deviation `scale` of any shape."""
    # Arguments were checked when the prior was created; checking traced tensors here would break the trace.
    return dist.Normal(0.0, scale, validate_args=False)


def independent(distribution: TorchDistributionMixin, parameter: Tensor) -> TorchDistributionMixin:
    """Expand a distribution, whose batch shape broadcasts, to the entries of `parameter`."""
    return distribution.expand(parameter.shape).to_event(parameter.ndim)
