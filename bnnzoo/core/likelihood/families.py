r"""Families of outcomes in unconstrained parameters, whose log densities and derivatives are finite far out.

A log rate of -800 underflows as a rate, and the derivative of its log density is then NaN. Here nothing is exponentiated
before it must be, and each family knows the Fisher information of its parameters.
"""

import math
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from torch import Tensor
from torch.distributions.utils import broadcast_all
from torch.nn.functional import logsigmoid, softplus

__all__ = ["Beta", "Family", "Gamma", "LogPoisson", "NegativeBinomial", "Shape", "ZeroInflated", "finite_exp"]

type Shape = torch.Size | list[int] | tuple[int, ...]

ONE = torch.Size()
"""The shape of a single draw."""


def finite_exp(x: Tensor) -> Tensor:
    """Return the exponential, continued by a line from where it is about to overflow, so that its derivative stays finite.

    Examples
    --------
    >>> x = torch.tensor(1e4, dtype=torch.float64, requires_grad=True)
    >>> finite_exp(x).backward()
    >>> bool(x.grad.isfinite())
    True
    """
    largest = 0.9 * math.log(torch.finfo(x.dtype).max)
    return x.clamp(max=largest).exp() * (1 + (x - largest).clamp(min=0.0))


class Family(dist.TorchDistribution):
    """A distribution of single numbers, whose unconstrained parameters ``arg_constraints`` names in order.

    Parameters
    ----------
    *parameters : Tensor or float
        Broadcast against each other to the batch shape.
    """

    support: Any = constraints.real

    def __init__(self, *parameters: Tensor | float) -> None:
        values = broadcast_all(*parameters)
        for name, value in zip(self.arg_constraints, values, strict=True):
            setattr(self, name, value)
        super().__init__(values[0].shape, validate_args=False)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Values of the parameters, in the order of the constructor."""
        return tuple(getattr(self, name) for name in self.arg_constraints)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Family":
        """Return the distribution with another batch shape."""
        return type(self)(*(value.expand(batch_shape) for value in self.parameters))

    def sample(self, sample_shape: Shape = ONE) -> Tensor:
        """Return draws, without gradients."""
        with torch.no_grad():
            drawn: Tensor = self.standard().sample(torch.Size(sample_shape))
        return drawn

    @property
    def mean(self) -> Tensor:
        """Mean of y."""
        found: Tensor = self.standard().mean
        return found

    @property
    def variance(self) -> Tensor:
        """Variance of y."""
        found: Tensor = self.standard().variance
        return found

    def entropy(self) -> Tensor:
        """Entropy in nats, where torch has it."""
        found: Tensor = self.standard().entropy()
        return found

    def standard(self) -> Any:
        """Return the same distribution in Pyro's parameters."""
        raise NotImplementedError

    def fisher(self) -> Tensor | None:
        """Return the Fisher information ``[..., d, d]`` of the parameters; None if it has no closed form."""
        return None


class LogPoisson(dist.Poisson):
    """A Poisson distribution by its log rate."""

    arg_constraints = {"log_rate": constraints.real}  # noqa: RUF012

    def __init__(self, log_rate: Tensor) -> None:
        self.log_rate = log_rate
        super().__init__(log_rate.exp(), validate_args=False)  # type: ignore[no-untyped-call]

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "LogPoisson":
        """Return the distribution with another batch shape."""
        return LogPoisson(self.log_rate.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log probability of counts."""
        return value * self.log_rate - finite_exp(self.log_rate) - torch.lgamma(value + 1)


class NegativeBinomial(Family):
    r"""Counts with mean :math:`\mu` and variance :math:`\mu + \mu^2 / \phi`, by :math:`\log \mu` and :math:`\log \phi`."""

    arg_constraints: ClassVar[dict[str, Any]] = {"log_mean": constraints.real, "log_concentration": constraints.real}
    support = constraints.nonnegative_integer

    log_mean: Tensor
    log_concentration: Tensor

    def standard(self) -> Any:
        """Return the same distribution in Pyro's parameters."""
        logits = self.log_mean - self.log_concentration
        return dist.NegativeBinomial(self.log_concentration.exp(), logits=logits, validate_args=False)

    @property
    def mean(self) -> Tensor:
        """Mean of y."""
        return self.log_mean.exp()

    @property
    def variance(self) -> Tensor:
        """Variance of y."""
        return self.log_mean.exp() + (2 * self.log_mean - self.log_concentration).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log probability of counts."""
        logits, concentration = self.log_mean - self.log_concentration, self.log_concentration.exp()
        choices = torch.lgamma(value + concentration) - torch.lgamma(concentration) - torch.lgamma(value + 1)
        return choices - concentration * softplus(logits) - value * softplus(-logits)


class ZeroInflated(dist.ZeroInflatedDistribution):
    """Counts that are zero with an additional probability, given by its logit."""

    def __init__(self, base_dist: LogPoisson | NegativeBinomial, gate_logits: Tensor) -> None:
        super().__init__(base_dist, gate_logits=gate_logits, validate_args=False)  # type: ignore[no-untyped-call]

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "ZeroInflated":
        """Return the distribution with another batch shape."""
        return ZeroInflated(self.base_dist.expand(batch_shape), self.gate_logits.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log probability of counts."""
        log_gate, log_rest = logsigmoid(self.gate_logits), logsigmoid(-self.gate_logits)
        counted = log_rest + self.base_dist.log_prob(value)
        return torch.where(value == 0, torch.logaddexp(log_gate, counted), counted)


class Beta(Family):
    r"""Proportions with mean :math:`\mu` and variance :math:`\mu (1 - \mu) / (1 + \phi)`.

    The parameters are the logit of :math:`\mu` and :math:`\log \phi`.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"logit_mean": constraints.real, "log_precision": constraints.real}
    support = constraints.unit_interval

    logit_mean: Tensor
    log_precision: Tensor

    def standard(self) -> Any:
        """Return the same distribution in Pyro's parameters."""
        log_a, log_b = self._log_concentrations()
        return dist.Beta(log_a.exp(), log_b.exp(), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """Mean of y."""
        return torch.sigmoid(self.logit_mean)

    @property
    def variance(self) -> Tensor:
        """Variance of y."""
        spread = torch.sigmoid(self.logit_mean) * torch.sigmoid(-self.logit_mean)
        return spread * torch.sigmoid(-self.log_precision)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of proportions."""
        (log_a, log_b), precision = self._log_concentrations(), self.log_precision.exp()
        a, b = log_a.exp(), log_b.exp()
        # log Gamma(a) = log Gamma(1 + a) - log a, which holds where a underflows
        beta_function = torch.lgamma(1 + a) - log_a + torch.lgamma(1 + b) - log_b - torch.lgamma(precision)
        return (a - 1) * value.log() + (b - 1) * torch.log1p(-value) - beta_function

    def fisher(self) -> Tensor:
        """Return the Fisher information ``[..., 2, 2]`` of both parameters."""
        mean, rest, precision = self.mean, torch.sigmoid(-self.logit_mean), self.log_precision.exp()
        of_a, of_b, of_both = (torch.polygamma(1, c) for c in (mean * precision, rest * precision, precision))
        cross = mean * of_a - rest * of_b
        rows = (
            ((mean * rest) ** 2 * (of_a + of_b), mean * rest * cross),
            (mean * rest * cross, mean**2 * of_a + rest**2 * of_b - of_both),
        )
        return precision[..., None, None] ** 2 * _matrix(rows)

    def _log_concentrations(self) -> tuple[Tensor, Tensor]:
        return (logsigmoid(self.logit_mean) + self.log_precision, logsigmoid(-self.logit_mean) + self.log_precision)


class Gamma(Family):
    r"""Positive numbers with mean :math:`\mu` and variance :math:`\mu^2 / \alpha`.

    The parameters are :math:`\log \mu` and :math:`\log \alpha`.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"log_mean": constraints.real, "log_shape": constraints.real}
    support = constraints.positive

    log_mean: Tensor
    log_shape: Tensor

    def standard(self) -> Any:
        """Return the same distribution in Pyro's parameters."""
        return dist.Gamma(self.log_shape.exp(), (self.log_shape - self.log_mean).exp(), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """Mean of y."""
        return self.log_mean.exp()

    @property
    def variance(self) -> Tensor:
        """Variance of y."""
        return (2 * self.log_mean - self.log_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of positive numbers."""
        shape, relative = self.log_shape.exp(), value.log() - self.log_mean
        return shape * (self.log_shape + relative - finite_exp(relative)) - value.log() - torch.lgamma(shape)

    def fisher(self) -> Tensor:
        """Return the Fisher information ``[..., 2, 2]`` of both parameters, which are orthogonal."""
        shape = self.log_shape.exp()
        zero = torch.zeros_like(shape)
        return _matrix(((shape, zero), (zero, shape**2 * torch.polygamma(1, shape) - shape)))


def _matrix(rows: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    return torch.stack([torch.stack(row, -1) for row in rows], -2)
