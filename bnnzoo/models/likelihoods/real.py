"""Likelihoods of real targets."""

from collections.abc import Callable
from dataclasses import dataclass

import pyro.distributions as dist
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.nn.functional import softplus

from bnnzoo.models.argument_checks import refuse_not_positive
from bnnzoo.models.likelihoods.likelihood import Likelihood, observe, value_or_site
from bnnzoo.models.likelihoods.named import SIGMA, Parameter, named
from bnnzoo.models.likelihoods.predictor import Unknown, parts_of, positive
from bnnzoo.models.likelihoods.target import refuse_not_real
from bnnzoo.models.written import Written, remembers_call

__all__ = ["gaussian", "heteroscedastic_gaussian", "heteroscedastic_laplace", "laplace", "student_t"]

Scale = Tensor | float


@dataclass(frozen=True, repr=False)
class _Homoscedastic(Written):
    name: str
    family: Callable[[Tensor, Scale], TorchDistributionMixin]
    scale: Unknown

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        loc = _location(self.name, output, y, offset)
        scale = value_or_site("sigma", self.scale, tuple(loc.shape[1:]))
        return observe(self.family(loc, scale).to_event(loc.ndim - 1), y)


@dataclass(frozen=True, repr=False)
class _StudentT(Written):
    df: Unknown
    scale: Unknown
    name: str = "likelihoods.student_t"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        loc = _location(self.name, output, y, offset)
        scale = value_or_site("sigma", self.scale, tuple(loc.shape[1:]))
        df = value_or_site("df", self.df)
        return observe(dist.StudentT(df, loc, scale, validate_args=False).to_event(loc.ndim - 1), y)


@dataclass(frozen=True, repr=False)
class _Heteroscedastic(Written):
    name: str
    family: Callable[[Tensor, Scale], TorchDistributionMixin]
    min_scale: float

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        meaning = ("its location", "its scale before softplus")
        loc, raw_scale = parts_of(self.name, output, offset, meaning)
        if y is not None:
            refuse_not_real(self.name, y, output, loc.shape, outputs_per_target=2)
        scale = softplus(raw_scale) + self.min_scale
        return observe(self.family(loc, scale).to_event(loc.ndim - 1), y)


@named(
    "real",
    "Gaussian noise of unknown scale",
    link="identity",
    parameters={"sigma": SIGMA},
    in_units=True,
    synonyms=("normal", "linear"),
)
@remembers_call
def gaussian(scale: Unknown | None = None) -> Likelihood:
    r"""Homoscedastic Gaussian noise: :math:`y_n \sim N(f_n, \sigma^2)`.

    The network has one output per target. Several targets, y of shape [N, D], are conditionally independent.

    Parameters
    ----------
    scale : float or Distribution, optional
        A number fixes :math:`\sigma`. A distribution is its prior: :math:`\sigma` becomes the latent site
        ``"sigma"``, of shape [D] for D > 1 targets. The default, ``HalfNormal(1.0)``, suits a
        standardised target.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not real, not finite or not of the output's shape.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import torch
    >>> bz.likelihoods.gaussian(scale=0.1)(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    return _Homoscedastic("likelihoods.gaussian", _normal, _scale("likelihoods.gaussian", scale))


@named("real", "Laplace noise of unknown scale", link="identity", parameters={"sigma": SIGMA}, in_units=True)
@remembers_call
def laplace(scale: Unknown | None = None) -> Likelihood:
    r"""Homoscedastic Laplace noise, robust to outliers: density :math:`\exp(-|y_n - f_n| / b) / (2b)`.

    The noise variance is :math:`2 b^2`.

    Parameters
    ----------
    scale : float or Distribution, optional
        A number fixes b. A distribution is its prior at the latent site ``"sigma"`` (shape [D] for D > 1 targets).
        Default: ``HalfNormal(1.0)``.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not real, not finite or not of the output's shape.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import torch
    >>> bz.likelihoods.laplace(scale=0.1)(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    return _Homoscedastic("likelihoods.laplace", _laplace, _scale("likelihoods.laplace", scale))


@named(
    "real",
    "Student t noise of unknown scale, 4 degrees of freedom",
    link="identity",
    parameters={
        "sigma": SIGMA,
        "df": Parameter("df", "dist.Gamma(2.0, 0.1)", "Gamma(2, 0.1)", centre=2.0, aliases=("nu",)),
    },
    in_units=True,
    synonyms=("student", "t"),
)
@remembers_call
def student_t(df: Unknown = 4.0, scale: Unknown | None = None) -> Likelihood:
    r"""Homoscedastic Student-t noise, robust to outliers: :math:`(y_n - f_n) / \sigma \sim t_\nu`.

    The noise variance is :math:`\sigma^2 \nu / (\nu - 2)`, infinite for :math:`\nu \le 2`.

    Parameters
    ----------
    df : float or Distribution
        Degrees of freedom :math:`\nu`; a distribution is its prior at the latent site ``"df"``.
    scale : float or Distribution, optional
        A number fixes :math:`\sigma`. A distribution is its prior at the latent site ``"sigma"`` (shape [D] for
        D > 1 targets). Default: ``HalfNormal(1.0)``.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not real, not finite or not of the output's shape.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import torch
    >>> bz.likelihoods.student_t(df=4.0, scale=0.1)(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    name = "likelihoods.student_t"
    return _StudentT(positive(name, "df", df), _scale(name, scale))


@named("real", "Gaussian noise whose scale depends on the inputs", num_outputs=2)
@remembers_call
def heteroscedastic_gaussian(min_scale: float = 1e-6) -> Likelihood:
    r"""Heteroscedastic Gaussian noise, with a scale predicted by the network: :math:`y_n \sim N(f_n, \sigma_n^2)`.

    The network has two outputs per target, :math:`f_n` and :math:`s_n`, with
    :math:`\sigma_n = \log(1 + e^{s_n}) + \sigma_{\min}`. For D targets the first D outputs are locations.

    Parameters
    ----------
    min_scale : float
        :math:`\sigma_{\min}`, positive, which keeps the density bounded.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if the number of outputs is odd, or y is not real, not finite or of another shape.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import torch
    >>> bz.likelihoods.heteroscedastic_gaussian()(torch.zeros(5, 2)).shape
    torch.Size([5])
    """
    refuse_not_positive("likelihoods.heteroscedastic_gaussian", min_scale=min_scale)
    return _Heteroscedastic("likelihoods.heteroscedastic_gaussian", _normal, min_scale)


@named("real", "Laplace noise whose scale depends on the inputs", num_outputs=2)
@remembers_call
def heteroscedastic_laplace(min_scale: float = 1e-6) -> Likelihood:
    r"""Heteroscedastic Laplace noise, with a scale predicted by the network: density :math:`\exp(-|y_n - f_n| / b_n) / (2 b_n)`.

    The network has two outputs per target, :math:`f_n` and :math:`s_n`, with
    :math:`b_n = \log(1 + e^{s_n}) + b_{\min}`; the noise variance is :math:`2 b_n^2`. For D targets the first D
    outputs are locations.

    Parameters
    ----------
    min_scale : float
        :math:`b_{\min}`, positive, which keeps the density bounded.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if the number of outputs is odd, or y is not real, not finite or of another shape.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import torch
    >>> bz.likelihoods.heteroscedastic_laplace()(torch.zeros(5, 2)).shape
    torch.Size([5])
    """
    refuse_not_positive("likelihoods.heteroscedastic_laplace", min_scale=min_scale)
    return _Heteroscedastic("likelihoods.heteroscedastic_laplace", _laplace, min_scale)


def _location(name: str, output: Tensor, y: Tensor | None, offset: Tensor | float | None) -> Tensor:
    (loc,) = parts_of(name, output, offset, ("its location",))
    if y is not None:
        refuse_not_real(name, y, output, loc.shape)
    return loc


# Arguments were checked when the likelihood was created; checking traced tensors here would break the trace.
def _normal(loc: Tensor, scale: Scale) -> TorchDistributionMixin:
    return dist.Normal(loc, scale, validate_args=False)


def _laplace(loc: Tensor, scale: Scale) -> TorchDistributionMixin:
    return dist.Laplace(loc, scale, validate_args=False)


def _scale(where: str, scale: Unknown | None) -> Unknown:
    return dist.HalfNormal(1.0) if scale is None else positive(where, "scale", scale)
