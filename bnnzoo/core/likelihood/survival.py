r"""Families of event times, and observations of them that are censored.

Follow-up until time t tells about parameters what the hazard says up to t, whether or not the event came then. For a hazard h,

.. math:: I(t) = \int_0^t \nabla \log h(u) \, \nabla \log h(u)^T \, h(u) \, du

has the Fisher information of the censored experiment as its expectation, whatever the mechanism of censoring, and needs no
knowledge of the times at which those who had their event would have been censored.

References
----------
Andersen, Borgan, Gill and Keiding (1993), Statistical Models Based on Counting Processes, Springer, chapter VI.
"""

import math
from typing import Any, ClassVar

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from torch import Tensor

from bnnzoo.core.likelihood.families import ONE, Family, Shape, finite_exp

__all__ = ["LogNormal", "RightCensored", "Weibull", "is_censored", "log_upper_tail"]

_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(64))
WIDTH = 10.0
"""Standard deviations below the mean at which a normal hazard is zero."""


class Weibull(Family):
    r"""Event times with survival function :math:`\exp(-(t / \lambda)^k)`, by the logarithms of scale and shape."""

    arg_constraints: ClassVar[dict[str, Any]] = {"log_scale": constraints.real, "log_shape": constraints.real}
    support = constraints.positive

    log_scale: Tensor
    log_shape: Tensor

    def standard(self) -> Any:
        """Return the same distribution in Pyro's parameters."""
        return dist.Weibull(self.log_scale.exp(), self.log_shape.exp(), validate_args=False)

    def sample(self, sample_shape: Shape = ONE) -> Tensor:
        """Return draws, without gradients."""
        with torch.no_grad():
            log_hazard = torch.empty(self._extended_shape(sample_shape)).to(self.log_scale).exponential_().log()
            return (self.log_scale + log_hazard * torch.exp(-self.log_shape)).exp()

    @property
    def mean(self) -> Tensor:
        """Mean of y."""
        return (self.log_scale + self._log_moment(1)).exp()

    @property
    def variance(self) -> Tensor:
        """Variance of y."""
        first, second = self._log_moment(1), self._log_moment(2)
        return (2 * (self.log_scale + first)).exp() * torch.expm1(second - 2 * first)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of times."""
        log_hazard = self._log_cumulative_hazard(value)
        return self.log_shape + log_hazard - finite_exp(log_hazard) - value.log()

    def log_survival(self, value: Tensor) -> Tensor:
        """Return the log probability of an event after ``value``."""
        return -finite_exp(self._log_cumulative_hazard(value))

    def fisher(self) -> Tensor:
        """Return the Fisher information ``[..., 2, 2]`` of both parameters."""
        shape, one = self.log_shape.exp(), torch.ones_like(self.log_shape)
        cross = (np.euler_gamma - 1) * shape
        return _symmetric(shape**2, cross, (math.pi**2 / 6 + (1 - np.euler_gamma) ** 2) * one)

    def information_until(self, value: Tensor) -> Tensor:
        """Return the information ``[..., 2, 2]`` of follow-up until ``value``."""
        log_hazard, shape = self._log_cumulative_hazard(value), self.log_shape.exp()
        found = _symmetric(shape**2, -shape * log_hazard, log_hazard**2 + 1)
        return found * log_hazard.exp()[..., None, None]

    def _log_cumulative_hazard(self, value: Tensor) -> Tensor:
        return self.log_shape.exp() * (value.log() - self.log_scale)

    def _log_moment(self, order: int) -> Tensor:
        return torch.lgamma(1 + order * torch.exp(-self.log_shape))


class LogNormal(Family):
    r"""Event times, or other positive numbers, whose logarithm is normal, by its mean and its log standard deviation."""

    arg_constraints: ClassVar[dict[str, Any]] = {"loc": constraints.real, "log_scale": constraints.real}
    support = constraints.positive

    loc: Tensor
    log_scale: Tensor

    def standard(self) -> Any:
        """Return the same distribution in Pyro's parameters."""
        return dist.LogNormal(self.loc, self.log_scale.exp(), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of times."""
        r = self._residual(value)
        return -0.5 * (r**2 + math.log(2 * math.pi)) - self.log_scale - value.log()

    def log_survival(self, value: Tensor) -> Tensor:
        """Return the log probability of an event after ``value``."""
        return log_upper_tail(self._residual(value))

    def fisher(self) -> Tensor:
        """Return the Fisher information ``[..., 2, 2]`` of both parameters, which are orthogonal."""
        zero = torch.zeros_like(self.loc)
        return _symmetric(torch.exp(-2 * self.log_scale), zero, zero + 2)

    def information_until(self, value: Tensor) -> Tensor:
        """Return the information ``[..., 2, 2]`` of follow-up until ``value``, by a 64-point Gauss-Legendre rule."""
        end = self._residual(value)[..., None]
        width = (end + WIDTH).clamp(min=1.0)
        r = end - width * (1 - _NODES.to(end)) / 2
        hazard = torch.exp(-0.5 * (r**2 + math.log(2 * math.pi)) - log_upper_tail(r))
        weight = hazard * width * _WEIGHTS.to(end) / 2
        by_loc, by_log_scale = -(hazard - r) * torch.exp(-self.log_scale)[..., None], -(1 + r * (hazard - r))
        terms = (by_loc**2, by_loc * by_log_scale, by_log_scale**2)
        return _symmetric(*((weight * term).sum(-1) for term in terms))

    def _residual(self, value: Tensor) -> Tensor:
        return (value.log() - self.loc) * torch.exp(-self.log_scale)


class RightCensored(dist.TorchDistribution):
    """Event times of which some are known only to be later than the value.

    Draws and moments are those of the event times themselves, which is what predictions are about.

    Parameters
    ----------
    base_dist : Weibull or LogNormal
    censored : Tensor
        True, or one, where the event is later than the value.
    until : Tensor
        End of follow-up, the values that are observed.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, base_dist: Weibull | LogNormal, censored: Tensor, until: Tensor) -> None:
        self.base_dist, self.censored, self.until = base_dist, censored, until
        super().__init__(base_dist.batch_shape, validate_args=False)

    @property
    def support(self) -> Any:
        """Support of the event times."""
        return self.base_dist.support

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "RightCensored":
        """Return the distribution with another batch shape."""
        base: Any = self.base_dist.expand(batch_shape)
        return RightCensored(base, self.censored.expand(batch_shape), self.until.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of events, and the log probability of a later event where censored."""
        return torch.where(self.censored != 0, self.base_dist.log_survival(value), self.base_dist.log_prob(value))

    def sample(self, sample_shape: Shape = ONE) -> Tensor:
        """Return draws of event times."""
        return self.base_dist.sample(sample_shape)

    def information(self) -> Tensor:
        """Return the information ``[..., d, d]`` of follow-up, as it was observed."""
        return self.base_dist.information_until(self.until)


def log_upper_tail(r: Tensor) -> Tensor:
    r"""Return :math:`\log P(Z > r)` for a standard normal Z, in operations that torch can batch, unlike ``log_ndtr``.

    Examples
    --------
    >>> bool((log_upper_tail(torch.tensor([0.0, 30.0])) - torch.tensor([-0.693147, -454.321244])).abs().max() < 1e-4)
    True
    """
    switch = 20.0 if r.dtype == torch.float64 else 12.0  # the complementary error function underflows beyond
    near, far = torch.where(r < switch, r, switch), torch.where(r < switch, switch, r)
    series, inverse = torch.ones_like(far), far**-2
    for order in range(15, 0, -2):  # 1 - 1 / r^2 + 3 / r^4 - 15 / r^6 + ...
        series = 1 - order * inverse * series
    tail = series.log() - far.log() - 0.5 * (far**2 + math.log(2 * math.pi))
    return torch.where(r < switch, torch.log(torch.erfc(near * 0.5**0.5) / 2), tail)


def is_censored(distribution: Any) -> bool:
    """Tell whether a distribution, or one that it wraps, is of times that may be censored."""
    while not isinstance(distribution, RightCensored):
        if not hasattr(distribution, "base_dist"):
            return False
        distribution = distribution.base_dist
    return True


def _symmetric(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.stack([torch.stack([a, b], -1), torch.stack([b, c], -1)], -2)
