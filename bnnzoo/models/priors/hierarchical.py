"""Priors whose scales are latent: layer-wise, one per input, horseshoe."""

import math
from dataclasses import dataclass

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions.transforms import PowerTransform

from bnnzoo.models.argument_checks import refuse_bad_scale, refuse_not_positive
from bnnzoo.models.placement import place
from bnnzoo.models.priors.prior import Prior, independent, zero_mean_normal
from bnnzoo.models.written import Written, remembers_call

__all__ = ["ard", "gamma_precision", "horseshoe", "layerwise"]


@dataclass(frozen=True, repr=False)
class _Layerwise(Written):
    scale: TorchDistributionMixin
    by_fan_in: bool

    def __call__(self, site_name: str, parameter: Tensor, fan_in: int) -> TorchDistributionMixin:
        scale = pyro.sample(f"{site_name}.scale", place(self.scale))
        shrink = math.sqrt(fan_in) if self.by_fan_in and parameter.ndim >= 2 else 1.0
        return independent(zero_mean_normal(scale / shrink), parameter)


@remembers_call
def layerwise(scale: TorchDistributionMixin | None = None, by_fan_in: bool = False) -> Prior:
    r"""Hierarchical normal prior: one unknown scale per parameter tensor, at site ``f"{site_name}.scale"``.

    :math:`w_i \mid s \sim N(0, s^2)` for all entries of a weight matrix (or bias vector) and
    :math:`s \sim` `scale`.

    Parameters
    ----------
    scale : Distribution, optional
        Hyperprior of s, a scalar distribution on the positive numbers (default: ``HalfCauchy(1.0)``). For Neal's
        gamma prior on the precision use `gamma_precision`.
    by_fan_in : bool
        Divide the scale of weights, but not of biases, by the square root of the fan-in.

    Returns
    -------
    Prior

    References
    ----------
    Neal (1996), Bayesian Learning for Neural Networks, section 3.2.

    Examples
    --------
    >>> import pyro
    >>> import pyro.distributions as dist
    >>> import torch
    >>> import bnnzoo as bz
    >>> prior = bz.priors.layerwise(dist.HalfNormal(1.0), by_fan_in=True)
    >>> trace = pyro.poutine.trace(prior).get_trace("net.0.weight", torch.zeros(50, 3), 3)
    >>> list(trace.stochastic_nodes)
    ['net.0.weight.scale']
    """
    return _Layerwise(_hyperprior("priors.layerwise", scale), by_fan_in)


@dataclass(frozen=True, repr=False)
class _ARD(Written):
    scale: TorchDistributionMixin

    def __call__(self, site_name: str, parameter: Tensor, fan_in: int) -> TorchDistributionMixin:
        if parameter.ndim < 2:
            return independent(zero_mean_normal(pyro.sample(f"{site_name}.scale", place(self.scale))), parameter)
        inputs = parameter.shape[1]
        scale = pyro.sample(f"{site_name}.scale", place(self.scale).expand([inputs]).to_event(1))
        return independent(zero_mean_normal(scale.reshape(inputs, *[1] * (parameter.ndim - 2))), parameter)


@remembers_call
def ard(scale: TorchDistributionMixin | None = None) -> Prior:
    r"""Automatic relevance determination: one unknown scale per input unit of every weight matrix.

    :math:`w_{ij} \mid s \sim N(0, s_j^2)` with :math:`s_j \sim` `scale` for input (or input channel) j, at site
    ``f"{site_name}.scale"`` of shape [inputs]. A bias has one scale for the whole vector. To learn which
    inputs matter, use it for the first layer only: ``by_parameter({"0.weight": ard()}, default=...)``.

    Parameters
    ----------
    scale : Distribution, optional
        Hyperprior of each :math:`s_j`, a scalar distribution on the positive numbers (default: ``HalfCauchy(1.0)``).

    Returns
    -------
    Prior

    References
    ----------
    MacKay (1994), Bayesian methods for backpropagation networks. Neal (1996), section 1.2.

    Examples
    --------
    >>> import pyro
    >>> import torch
    >>> import bnnzoo as bz
    >>> trace = pyro.poutine.trace(bz.priors.ard()).get_trace("net.0.weight", torch.zeros(50, 3), 3)
    >>> trace.nodes["net.0.weight.scale"]["value"].shape
    torch.Size([3])
    """
    return _ARD(_hyperprior("priors.ard", scale))


@dataclass(frozen=True, repr=False)
class _Horseshoe(Written):
    global_scale: float
    slab_scale: float | None
    slab_df: float

    def __call__(self, site_name: str, parameter: Tensor, fan_in: int) -> TorchDistributionMixin:
        tau = pyro.sample(f"{site_name}.global_scale", dist.HalfCauchy(self.global_scale, validate_args=False))
        unit = dist.HalfCauchy(1.0, validate_args=False)
        local = pyro.sample(f"{site_name}.local_scale", independent(unit, parameter))
        scale = tau * local
        if self.slab_scale is not None:
            half = 0.5 * self.slab_df
            squared = pyro.sample(f"{site_name}.slab_variance", dist.InverseGamma(half, half * self.slab_scale**2))
            scale = scale * torch.rsqrt(1 + scale**2 / squared)
        return independent(zero_mean_normal(scale), parameter)


@remembers_call
def horseshoe(global_scale: float = 1.0, slab_scale: float | None = None, slab_df: float = 4.0) -> Prior:
    r"""Horseshoe prior: most weights near zero, a few unshrunk.

    :math:`w_i \sim N(0, \tau^2 \lambda_i^2)` with :math:`\lambda_i \sim C^+(0, 1)` at site
    ``f"{site_name}.local_scale"`` and one :math:`\tau \sim C^+(0, \tau_0)` per parameter tensor at
    ``f"{site_name}.global_scale"``. With `slab_scale` it is the regularised horseshoe, whose scale
    :math:`(\tau^{-2} \lambda_i^{-2} + c^{-2})^{-1/2}` never exceeds c, where
    :math:`c^2 \sim \mathrm{InvGamma}(\nu / 2, \nu s^2 / 2)` at ``f"{site_name}.slab_variance"``.

    Parameters
    ----------
    global_scale : float
        :math:`\tau_0`, positive.
    slab_scale : float, optional
        Slab scale s, positive; None for the original horseshoe.
    slab_df : float
        Slab degrees of freedom :math:`\nu`, positive.

    Returns
    -------
    Prior

    References
    ----------
    Carvalho, Polson, Scott (2010), The horseshoe estimator for sparse signals.
    Piironen, Vehtari (2017), Sparsity information and regularization in the horseshoe and other shrinkage priors.

    Examples
    --------
    >>> import pyro
    >>> import torch
    >>> import bnnzoo as bz
    >>> trace = pyro.poutine.trace(bz.priors.horseshoe(0.1)).get_trace("net.0.weight", torch.zeros(50, 3), 3)
    >>> list(trace.stochastic_nodes)
    ['net.0.weight.global_scale', 'net.0.weight.local_scale']
    """
    refuse_not_positive("priors.horseshoe", global_scale=global_scale, slab_scale=slab_scale, slab_df=slab_df)
    return _Horseshoe(global_scale, slab_scale, slab_df)


def gamma_precision(shape: float, scale: float) -> TorchDistributionMixin:
    r"""Distribution of a scale s whose precision :math:`s^{-2}` has a gamma distribution with mean ``scale**-2``.

    :math:`s^{-2} \sim \mathrm{Gamma}(a, \mathrm{rate} = a \sigma_0^2)`: a hyperprior for `layerwise`, `ard` and the
    noise scale of `bnnzoo.likelihoods`, vague for small a.

    Parameters
    ----------
    shape : float
        a, positive; half of Neal's shape parameter.
    scale : float
        :math:`\sigma_0`, positive.

    Returns
    -------
    Distribution
        The distribution of s, with batch shape ``()``.

    References
    ----------
    Neal (1996), Bayesian Learning for Neural Networks, section 3.2.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.priors.gamma_precision(shape=0.25, scale=0.05).log_prob(torch.tensor(0.1)).shape
    torch.Size([])
    """
    refuse_not_positive("priors.gamma_precision", shape=shape, scale=scale)
    return dist.TransformedDistribution(dist.Gamma(shape, shape * scale**2), [PowerTransform(torch.tensor(-0.5))])


def _hyperprior(where: str, scale: TorchDistributionMixin | None) -> TorchDistributionMixin:
    if scale is None:
        return dist.HalfCauchy(1.0)
    refuse_bad_scale(where, scale)
    return scale
