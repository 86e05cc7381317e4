"""Priors with fixed scales."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyro.distributions as dist
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from bnnzoo.models.argument_checks import refuse_not_positive
from bnnzoo.models.priors.prior import Prior, independent, zero_mean_normal
from bnnzoo.models.written import Written, remembers_call

__all__ = ["fan_in", "laplace", "normal", "student_t"]


@dataclass(frozen=True, repr=False)
class _Fixed(Written):
    """Independent zero-mean parameters of one family, with fixed scales for weights and biases."""

    family: Callable[[Tensor | float], TorchDistributionMixin]
    weight_scale: float
    bias_scale: float
    by_fan_in: bool = False

    def __call__(self, site_name: str, parameter: Tensor, fan_in: int) -> TorchDistributionMixin:
        if parameter.ndim < 2:
            return independent(self.family(self.bias_scale), parameter)
        return independent(self.family(self.weight_scale / (math.sqrt(fan_in) if self.by_fan_in else 1.0)), parameter)


@remembers_call
def normal(scale: float = 1.0) -> Prior:
    r"""Independent normal prior :math:`w \sim N(0, s^2)` for every weight and bias.

    Parameters
    ----------
    scale : float
        Standard deviation s, positive.

    Returns
    -------
    Prior

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.priors.normal(2.0)("net.0.weight", torch.zeros(50, 3), fan_in=3).event_shape
    torch.Size([50, 3])
    """
    refuse_not_positive("priors.normal", scale=scale)
    return _Fixed(zero_mean_normal, scale, scale)


@remembers_call
def fan_in(weight_scale: float = 1.0, bias_scale: float = 1.0) -> Prior:
    r"""Normal prior whose weights are scaled by the fan-in, so that functions do not grow with the width of the network.

    Weights of a layer with n inputs per unit have :math:`w \sim N(0, s_w^2 / n)`, biases :math:`b \sim N(0, s_b^2)`.

    Parameters
    ----------
    weight_scale : float
        :math:`s_w`, positive.
    bias_scale : float
        :math:`s_b`, positive.

    Returns
    -------
    Prior

    References
    ----------
    Neal (1996), Bayesian Learning for Neural Networks, section 2.1.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> weights = bz.priors.fan_in(weight_scale=4.0)("net.2.weight", torch.zeros(1, 16), fan_in=16)
    >>> float(weights.base_dist.scale[0, 0])
    1.0
    """
    refuse_not_positive("priors.fan_in", weight_scale=weight_scale, bias_scale=bias_scale)
    return _Fixed(zero_mean_normal, weight_scale, bias_scale, by_fan_in=True)


@remembers_call
def laplace(scale: float = 1.0) -> Prior:
    r"""Independent Laplace prior with density :math:`\exp(-|w| / b) / (2b)` for every weight and bias.

    Parameters
    ----------
    scale : float
        b, positive; the standard deviation is :math:`\sqrt{2} b`.

    Returns
    -------
    Prior

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.priors.laplace(0.5)("net.0.bias", torch.zeros(50), fan_in=3).event_shape
    torch.Size([50])
    """
    refuse_not_positive("priors.laplace", scale=scale)
    return _Fixed(_laplace, scale, scale)


@remembers_call
def student_t(df: float = 3.0, scale: float = 1.0) -> Prior:
    r"""Independent Student-t prior :math:`w / s \sim t_\nu` for every weight and bias.

    Parameters
    ----------
    df : float
        Degrees of freedom :math:`\nu`, positive; 1 gives the Cauchy prior.
    scale : float
        s, positive.

    Returns
    -------
    Prior

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.priors.student_t(df=3.0)("net.0.bias", torch.zeros(50), fan_in=3).event_shape
    torch.Size([50])
    """
    refuse_not_positive("priors.student_t", df=df, scale=scale)
    return _Fixed(partial(_student_t, df), scale, scale)


def _laplace(scale: Tensor | float) -> TorchDistributionMixin:
    return dist.Laplace(0.0, scale, validate_args=False)


def _student_t(df: float, scale: Tensor | float) -> TorchDistributionMixin:
    return dist.StudentT(df, 0.0, scale, validate_args=False)
