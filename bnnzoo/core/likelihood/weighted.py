"""Observations whose log likelihood counts more than once, or less."""

from typing import Any, ClassVar

import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.likelihood.families import ONE, Shape

__all__ = ["Weighted"]


class Weighted(dist.TorchDistribution):
    r"""A distribution whose log density is multiplied by a weight for each row: :math:`w_n \log p(y_n)`.

    Draws and moments are those of the distribution itself: a weight says how much a row counts, not what y would be.

    Parameters
    ----------
    base_dist : Distribution
        Of batch shape [N].
    weights : Tensor [N]

    Examples
    --------
    >>> import torch
    >>> found = Weighted(dist.Normal(torch.zeros(2), 1.0), torch.tensor([1.0, 2.0]))
    >>> [round(value, 4) for value in found.log_prob(torch.zeros(2)).tolist()]
    [-0.9189, -1.8379]
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, base_dist: Any, weights: Tensor) -> None:
        self.base_dist, self.weights = base_dist, weights
        super().__init__(base_dist.batch_shape, base_dist.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        """Support of the distribution."""
        return self.base_dist.support

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the support can be enumerated."""
        return bool(self.base_dist.has_enumerate_support)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return the values of the support."""
        found: Tensor = self.base_dist.enumerate_support(expand)
        return found

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Weighted":
        """Return the distribution with another batch shape."""
        return Weighted(self.base_dist.expand(batch_shape), self.weights.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the weighted log density."""
        found: Tensor = self.weights * self.base_dist.log_prob(value)
        return found

    def root_log_prob(self, value: Tensor) -> Tensor:
        """Return the log density times the root of the weight, whose squared gradients have the weight itself."""
        found: Tensor = self.weights.sqrt() * self.base_dist.log_prob(value)
        return found

    def sample(self, sample_shape: Shape = ONE) -> Tensor:
        """Return draws of the distribution."""
        found: Tensor = self.base_dist.sample(sample_shape)
        return found
