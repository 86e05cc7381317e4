"""Likelihoods of overdispersed counts."""

from dataclasses import dataclass

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from bnnzoo.core.likelihood.families import LogPoisson, NegativeBinomial, ZeroInflated
from bnnzoo.models.likelihoods.likelihood import Likelihood, observe
from bnnzoo.models.likelihoods.named import Parameter, named
from bnnzoo.models.likelihoods.predictor import Unknown, log_site, parts_of, positive, site_or_number
from bnnzoo.models.likelihoods.target import refuse_not_counts
from bnnzoo.models.written import Written, remembers_call

__all__ = ["negative_binomial", "zero_inflated_negative_binomial", "zero_inflated_poisson"]

CONCENTRATION = Parameter(
    "concentration", "dist.LogNormal(1.0, 1.5)", "log-normal(1, 1.5)", centre=1.0, aliases=("phi", "shape")
)
ZEROS = Parameter("zeros", "dist.Beta(1.0, 1.0)", "uniform", "torch.sigmoid", aliases=("zi",))


@dataclass(frozen=True, repr=False)
class _NegativeBinomial(Written):
    concentration: Unknown
    name: str = "likelihoods.negative_binomial"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        (log_mean,) = parts_of(self.name, output, offset, ("its log mean",))
        if y is not None:
            refuse_not_counts(self.name, y, output, log_mean.shape)
            y = y.to(log_mean.dtype)
        counts = NegativeBinomial(log_mean, log_site("concentration", self.concentration, log_mean))
        return observe(counts.to_event(log_mean.ndim - 1), y)


@dataclass(frozen=True, repr=False)
class _ZeroInflated(Written):
    name: str
    zeros: Unknown | None
    concentration: Unknown | None

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        meaning = ("its log mean", "the logit of additional zeros")[: 2 if self.zeros is None else 1]
        log_mean, *predicted = parts_of(self.name, output, offset, meaning)
        if y is not None:
            refuse_not_counts(self.name, y, output, log_mean.shape, outputs_per_target=len(meaning))
            y = y.to(log_mean.dtype)
        if predicted:
            logits = predicted[0]
        else:
            assert self.zeros is not None
            logits = torch.logit(site_or_number("zeros", self.zeros, log_mean))
        counts = ZeroInflated(self._base(log_mean), logits.expand(log_mean.shape))
        return observe(counts.to_event(log_mean.ndim - 1), y)

    def _base(self, log_mean: Tensor) -> LogPoisson | NegativeBinomial:
        if self.concentration is None:
            return LogPoisson(log_mean)
        return NegativeBinomial(log_mean, log_site("concentration", self.concentration, log_mean))


@named(
    "count",
    "negative binomial counts of unknown concentration, log link",
    link="log",
    parameters={"concentration": CONCENTRATION},
    synonyms=("negbinomial", "nb", "negbin"),
)
@remembers_call
def negative_binomial(concentration: Unknown | None = None) -> Likelihood:
    r"""Overdispersed counts with the network's output as log mean: :math:`y_n \sim \mathrm{NegBinomial}(e^{f_n}, \phi)`.

    The mean is :math:`\mu_n = e^{f_n}`, the variance :math:`\mu_n + \mu_n^2 / \phi`. The Poisson distribution is the limit
    for large :math:`\phi`.

    Parameters
    ----------
    concentration : float or Distribution, optional
        A number fixes :math:`\phi`. A distribution is its prior at the latent site ``"concentration"`` (shape [D] for
        D > 1 targets). Default: ``LogNormal(1.0, 1.5)``, 95% of which lie between 0.14 and 51.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is negative, not an integer, or not of the output's shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.negative_binomial()(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    return _NegativeBinomial(_concentration("likelihoods.negative_binomial", concentration))


@named(
    "count",
    "Poisson counts with additional zeros, log and logit links",
    num_outputs=2,
    link="log",
    parameters={"zeros": ZEROS},
)
@remembers_call
def zero_inflated_poisson(zeros: Unknown | None = None) -> Likelihood:
    r"""Counts with more zeros than a Poisson distribution has: :math:`y_n = 0` with probability :math:`\pi_n`, else Poisson.

    The network has two outputs per target: the log rate, :math:`f_n`, and the logit of :math:`\pi_n`. For D targets the first
    D outputs are log rates. The mean of y is :math:`(1 - \pi_n) e^{f_n}`.

    Parameters
    ----------
    zeros : float or Distribution, optional
        One probability :math:`\pi` for all rows, in place of a predicted one: a number, or its prior at the latent site
        ``"zeros"``, such as ``Beta(1.0, 1.0)``. The network then has one output per target. Default: predicted.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if the number of outputs is odd, or y is negative, not an integer, or of another shape.

    References
    ----------
    Lambert (1992), Zero-inflated Poisson regression, with an application to defects in manufacturing, Technometrics 34.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.zero_inflated_poisson()(torch.zeros(5, 2)).shape
    torch.Size([5])
    """
    name = "likelihoods.zero_inflated_poisson"
    return _ZeroInflated(name, _probability(name, zeros), None)


@named(
    "count",
    "negative binomial counts with additional zeros, log and logit links",
    num_outputs=2,
    link="log",
    parameters={"zeros": ZEROS, "concentration": CONCENTRATION},
)
@remembers_call
def zero_inflated_negative_binomial(zeros: Unknown | None = None, concentration: Unknown | None = None) -> Likelihood:
    r"""Overdispersed counts with additional zeros: :math:`y_n = 0` with probability :math:`\pi_n`, else negative binomial.

    Parameters
    ----------
    zeros : float or Distribution, optional
        As for `zero_inflated_poisson`: predicted by the network's second output per target unless given.
    concentration : float or Distribution, optional
        As for `negative_binomial`.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if the number of outputs is odd, or y is negative, not an integer, or of another shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.zero_inflated_negative_binomial(zeros=0.2)(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    name = "likelihoods.zero_inflated_negative_binomial"
    return _ZeroInflated(name, _probability(name, zeros), _concentration(name, concentration))


def _concentration(where: str, value: Unknown | None) -> Unknown:
    found: Unknown = dist.LogNormal(1.0, 1.5) if value is None else positive(where, "concentration", value)
    return found


def _probability(where: str, value: Unknown | None) -> Unknown | None:
    if isinstance(value, TorchDistributionMixin):
        upper = getattr(value.support, "upper_bound", None)
        positive(where, "zeros", value)
        if upper is None or float(upper) > 1:
            raise ValueError(
                f"{where}: the prior of zeros must be on probabilities, such as Beta(1.0, 1.0), not {value}."
            )
    elif isinstance(value, Tensor):
        return value  # which a model has computed
    elif value is not None and not (isinstance(value, int | float) and 0 < value < 1):
        raise ValueError(f"{where}: zeros must be a probability strictly between 0 and 1, but is {value!r}.")
    return value
