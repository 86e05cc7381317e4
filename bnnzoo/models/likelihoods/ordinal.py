"""The likelihood of ordered categories."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.nn.functional import logsigmoid

from bnnzoo.core.likelihood.families import ONE, Shape
from bnnzoo.models.likelihoods.likelihood import Likelihood, observe
from bnnzoo.models.likelihoods.named import named
from bnnzoo.models.likelihoods.predictor import parts_of
from bnnzoo.models.likelihoods.target import refuse_bad_categories
from bnnzoo.models.placement import place
from bnnzoo.models.written import Written, remembers_call

__all__ = ["OrderStatistics", "cumulative_logits", "ordinal"]


class OrderStatistics(dist.TorchDistribution):
    r"""Independent draws in increasing order: density :math:`n! \prod_i p(c_i)` where :math:`c_1 < \ldots < c_n`.

    Parameters
    ----------
    base : Distribution
        Of single real numbers.
    size : int
        Number n of draws.
    batch_shape : torch.Size
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.ordered_vector

    def __init__(self, base: TorchDistributionMixin, size: int, batch_shape: torch.Size = ONE) -> None:
        self.base, self.size = base, size
        super().__init__(batch_shape, torch.Size([size]), validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "OrderStatistics":
        """Return the distribution with another batch shape."""
        return OrderStatistics(self.base, self.size, torch.Size(batch_shape))

    def sample(self, sample_shape: Shape = ONE) -> Tensor:
        """Return draws ``[..., n]``."""
        drawn: Tensor = self.base.sample(self._extended_shape(sample_shape))
        return drawn.sort(-1).values

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density ``[...]``."""
        found: Tensor = self.base.log_prob(value).sum(-1)
        return found + math.lgamma(self.size + 1)


@dataclass(frozen=True, repr=False)
class _Ordinal(Written):
    num_categories: int
    cutpoints: tuple[float, ...] | TorchDistributionMixin
    name: str = "likelihoods.ordinal"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        (predictor,) = parts_of(self.name, output, offset, ("its predictor",))
        if y is not None:
            refuse_bad_categories(self.name, y, output, predictor.shape, self.num_categories)
        if isinstance(self.cutpoints, tuple):
            cutpoints = torch.as_tensor(self.cutpoints, dtype=predictor.dtype, device=predictor.device)
        else:
            prior: Any = OrderStatistics(place(self.cutpoints), self.num_categories - 1)
            shape = predictor.shape[1:]
            found: Tensor = pyro.sample("cutpoints", prior.expand(shape).to_event(len(shape)))
            cutpoints = found
        logits = cumulative_logits(predictor, cutpoints)
        return observe(dist.Categorical(logits=logits, validate_args=False).to_event(predictor.ndim - 1), y)


def cumulative_logits(predictor: Tensor, cutpoints: Tensor) -> Tensor:
    r"""Return :math:`\log P(y = k)` ``[..., K]`` of :math:`P(y \le k) = \sigma(c_k - f)` for ``f[...]`` and ``c[..., K - 1]``.

    Differences of probabilities would be zero far out; their logarithm is
    :math:`\log \sigma(c_k - f) + \log \sigma(f - c_{k-1}) + \log(1 - e^{c_{k-1} - c_k})`.

    Examples
    --------
    >>> cumulative_logits(torch.zeros(1), torch.tensor([-1.0, 1.0])).exp().sum()
    tensor(1.)
    """
    gaps = cutpoints - predictor[..., None]
    edge = torch.zeros_like(gaps[..., :1])
    steps = (cutpoints[..., 1:] - cutpoints[..., :-1]).expand(*gaps.shape[:-1], -1)
    below, above = torch.cat([logsigmoid(gaps), edge], -1), torch.cat([edge, logsigmoid(-gaps)], -1)
    return below + above + torch.cat([edge, torch.log(-torch.expm1(-steps)), edge], -1)


@named(
    "ordered",
    "cumulative logit link, unknown cutpoints",
    link="logit",
    synonyms=("cumulative", "ordered", "ordered_logistic"),
)
@remembers_call
def ordinal(num_categories: int, cutpoints: Sequence[float] | TorchDistributionMixin | None = None) -> Likelihood:
    r"""Ordered categories, cumulative logit: :math:`P(y_n \le k) = 1 / (1 + e^{f_n - c_{k + 1}})`.

    The network has one output per target. A larger one makes higher categories more probable: the odds of exceeding any
    category are multiplied by :math:`e^{f}` (proportional odds).

    Parameters
    ----------
    num_categories : int
        Number K of categories; y is an integer 0 to K - 1, [N] or [N, D].
    cutpoints : sequence of float or Distribution, optional
        K - 1 increasing numbers fix the cutpoints c. A distribution is the prior of each of them, up to their order: that of
        the latent site ``"cutpoints"``, of shape [K - 1] or [D, K - 1], is the distribution of K - 1 draws in increasing
        order. Default: ``Logistic(0.0, 1.0)``, under which all probabilities of categories at f = 0 are equally likely.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        If there are fewer than two categories, or the cutpoints do not increase; when the model runs, if y is not an
        integer 0 to K - 1, or not of the output's shape.

    References
    ----------
    McCullagh (1980), Regression models for ordinal data, Journal of the Royal Statistical Society B 42.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.ordinal(num_categories=4)(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    where = "likelihoods.ordinal"
    if isinstance(num_categories, bool) or not isinstance(num_categories, int) or num_categories < 2:
        raise ValueError(f"{where}: num_categories must be a whole number, two or more, but is {num_categories!r}.")
    if cutpoints is None or isinstance(cutpoints, TorchDistributionMixin):
        return _Ordinal(num_categories, _prior(where, cutpoints))
    values = tuple(float(value) for value in cutpoints)
    if len(values) != num_categories - 1 or any(a >= b for a, b in itertools.pairwise(values)):
        raise ValueError(
            f"{where}: cutpoints must be {num_categories - 1} increasing numbers for {num_categories} categories, but are "
            f"{values}."
        )
    return _Ordinal(num_categories, values)


def _prior(where: str, prior: TorchDistributionMixin | None) -> TorchDistributionMixin:
    if prior is None:
        return dist.Logistic(0.0, 1.0)
    if prior.batch_shape + prior.event_shape != () or prior.support is not constraints.real:
        raise ValueError(
            f"{where}: the prior of cutpoints must be one scalar distribution on the real numbers, such as Normal(0.0, 2.0), "
            f"not {prior}."
        )
    return prior
