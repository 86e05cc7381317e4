"""Likelihoods of positive numbers, of event times that may be censored, and of proportions."""

from dataclasses import dataclass, replace

import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.likelihood.families import Beta, Gamma
from bnnzoo.core.likelihood.survival import LogNormal, RightCensored, Weibull
from bnnzoo.models.likelihoods.likelihood import Likelihood, observe
from bnnzoo.models.likelihoods.named import SIGMA, Parameter, named
from bnnzoo.models.likelihoods.predictor import Unknown, log_site, parts_of, positive
from bnnzoo.models.likelihoods.target import refuse_bad_censoring, refuse_not_positive_target, refuse_not_proportions
from bnnzoo.models.written import Written, remembers_call

__all__ = ["beta", "gamma", "log_normal", "weibull"]

SHAPE = "dist.LogNormal(0.0, 1.0)", "log-normal(0, 1)"
"""Prior of a shape in formulas, and the same in words."""


@dataclass(frozen=True, repr=False)
class _Beta(Written):
    precision: Unknown
    name: str = "likelihoods.beta"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        (logit,) = parts_of(self.name, output, offset, ("the logit of its mean",))
        if y is not None:
            refuse_not_proportions(self.name, y, output, logit.shape)
        family = Beta(logit, log_site("precision", self.precision, logit))
        return observe(family.to_event(logit.ndim - 1), y)


@dataclass(frozen=True, repr=False)
class _Gamma(Written):
    shape: Unknown
    name: str = "likelihoods.gamma"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        (log_mean,) = parts_of(self.name, output, offset, ("its log mean",))
        if y is not None:
            refuse_not_positive_target(self.name, y, output, log_mean.shape)
            y = y.to(log_mean.dtype)
        family = Gamma(log_mean, log_site("shape", self.shape, log_mean))
        return observe(family.to_event(log_mean.ndim - 1), y)


@dataclass(frozen=True, repr=False)
class _EventTime(Written):
    name: str
    family: type[Weibull] | type[LogNormal]
    site: str
    value: Unknown

    def __call__(
        self,
        output: Tensor,
        y: Tensor | None = None,
        offset: Tensor | float | None = None,
        censored: Tensor | None = None,
    ) -> Tensor:
        (location,) = parts_of(self.name, output, offset, ("its log scale",))
        times: Weibull | LogNormal | RightCensored = self.family(location, log_site(self.site, self.value, location))
        if y is not None:
            refuse_not_positive_target(self.name, y, output, location.shape)
            y = y.to(location.dtype)
            if censored is not None:
                refuse_bad_censoring(self.name, censored, y)
                times = RightCensored(times, censored, y)
        return observe(times.to_event(location.ndim - 1), y)


@named(
    "proportion",
    "beta distribution of unknown precision, logit link",
    link="logit",
    parameters={
        "precision": Parameter(
            "precision", "dist.LogNormal(2.0, 1.5)", "log-normal(2, 1.5)", centre=2.0, aliases=("phi",)
        )
    },
)
@remembers_call
def beta(precision: Unknown | None = None) -> Likelihood:
    r"""Proportions with the network's output as logit of the mean: :math:`y_n \sim \mathrm{Beta}(\mu_n \phi, (1 - \mu_n) \phi)`.

    The variance is :math:`\mu_n (1 - \mu_n) / (1 + \phi)` with :math:`\mu_n = 1 / (1 + e^{-f_n})`.

    Parameters
    ----------
    precision : float or Distribution, optional
        A number fixes :math:`\phi`. A distribution is its prior at the latent site ``"precision"`` (shape [D] for
        D > 1 targets). Default: ``LogNormal(2.0, 1.5)``, 95% of which lie between 0.4 and 140.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not strictly between 0 and 1, or not of the output's shape.

    References
    ----------
    Ferrari and Cribari-Neto (2004), Beta regression for modelling rates and proportions, Journal of Applied Statistics 31.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.beta()(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    return _Beta(_or_default("likelihoods.beta", "precision", precision, dist.LogNormal(2.0, 1.5)))


@named(
    "positive",
    "gamma distribution of unknown shape, log link",
    link="log",
    parameters={"shape": Parameter("shape", *SHAPE, aliases=("alpha",))},
)
@remembers_call
def gamma(shape: Unknown | None = None) -> Likelihood:
    r"""Positive numbers with the network's output as log mean: :math:`y_n \sim \mathrm{Gamma}(\alpha, \alpha e^{-f_n})`.

    The mean is :math:`\mu_n = e^{f_n}`, the variance :math:`\mu_n^2 / \alpha`: the coefficient of variation is constant.

    Parameters
    ----------
    shape : float or Distribution, optional
        A number fixes :math:`\alpha`. A distribution is its prior at the latent site ``"shape"`` (shape [D] for D > 1
        targets). Default: ``LogNormal(0.0, 1.0)``.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not positive and finite, or not of the output's shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.gamma()(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    return _Gamma(_or_default("likelihoods.gamma", "shape", shape, dist.LogNormal(0.0, 1.0)))


@named(
    "positive",
    "log-normal distribution of unknown scale",
    link="identity",
    parameters={"sigma": replace(SIGMA, attribute="value")},
    in_units=True,
    synonyms=("lognormal",),
    censored=True,
)
@remembers_call
def log_normal(scale: Unknown | None = None) -> Likelihood:
    r"""Positive numbers or event times, log-normal: :math:`\log y_n \sim N(f_n, \sigma^2)`. Times may be right-censored.

    The median is :math:`e^{f_n}`, the mean :math:`e^{f_n + \sigma^2 / 2}`.

    Parameters
    ----------
    scale : float or Distribution, optional
        A number fixes :math:`\sigma`. A distribution is its prior at the latent site ``"sigma"`` (shape [D] for D > 1
        targets). Default: ``HalfNormal(1.0)``.

    Returns
    -------
    Likelihood
        It takes ``censored``: 1 where the event is only known to come after y, whose likelihood is the probability of that.

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not positive and finite, `censored` is not 0 or 1, or one is not of the output's shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> likelihood = bz.likelihoods.log_normal(scale=1.0)
    >>> likelihood(torch.zeros(2, 1), torch.tensor([1.0, 2.0]), censored=torch.tensor([0, 1]))
    tensor([1., 2.])
    """
    name = "likelihoods.log_normal"
    return _EventTime(name, LogNormal, "sigma", _or_default(name, "scale", scale, dist.HalfNormal(1.0)))


@named(
    "positive",
    "Weibull distribution of unknown shape, log link",
    link="log",
    parameters={"shape": Parameter("shape", *SHAPE, attribute="value", aliases=("k",))},
    censored=True,
)
@remembers_call
def weibull(shape: Unknown | None = None) -> Likelihood:
    r"""Event times, Weibull: :math:`P(y_n > t) = \exp(-(t e^{-f_n})^k)`. Times may be right-censored.

    The network's output is the log scale. The hazard rises with time for k > 1, falls for k < 1, and is constant for
    ``shape=1.0``, the exponential distribution. The model has accelerated failure times and proportional hazards at once:
    :math:`e^{f_n}` multiplies all times, and :math:`e^{-k f_n}` the hazard. The mean is :math:`e^{f_n} \Gamma(1 + 1 / k)`.

    Parameters
    ----------
    shape : float or Distribution, optional
        A number fixes k. A distribution is its prior at the latent site ``"shape"`` (shape [D] for D > 1 targets).
        Default: ``LogNormal(0.0, 1.0)``.

    Returns
    -------
    Likelihood
        It takes ``censored``: 1 where the event is only known to come after y, whose likelihood is the probability of that.

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not positive and finite, `censored` is not 0 or 1, or one is not of the output's shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> likelihood = bz.likelihoods.weibull(shape=1.0)
    >>> likelihood(torch.zeros(2, 1), torch.tensor([1.0, 2.0]), censored=torch.tensor([0, 1]))
    tensor([1., 2.])
    """
    name = "likelihoods.weibull"
    return _EventTime(name, Weibull, "shape", _or_default(name, "shape", shape, dist.LogNormal(0.0, 1.0)))


def _or_default(where: str, name: str, value: Unknown | None, default: Unknown) -> Unknown:
    found: Unknown = default if value is None else positive(where, name, value)
    return found
