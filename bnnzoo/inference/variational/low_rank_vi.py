"""Low-rank variational inference: Gaussians whose entries are correlated along a few directions."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.posterior.covariance import LowRankPlusDiagonal
from bnnzoo.core.settings import Count
from bnnzoo.inference.optimise.pathfinder import Frame
from bnnzoo.inference.variational.fit_family import GaussianVI

__all__ = ["LowRank", "LowRankVI"]


@dataclass(frozen=True)
class LowRank:
    r"""Gaussians with a diagonal plus low-rank covariance: ``params`` has P means, P log scales and B, ``[P, rank]``.

    .. math:: \Sigma = F F^\top + \operatorname{diag}(s^2), \qquad F = \operatorname{diag}(s) \sinh(B) / \sqrt{P}

    Rows of the factor are in units of their own scale, and columns are scaled, because an optimiser moves all entries by the
    same amount in its first steps: unscaled, these add up to a draw's move of far more than a posterior standard deviation
    where the posterior is narrow. The hyperbolic sine lets large entries grow by factors.
    """

    num_params: int
    rank: int

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return parameters with the given means ``[P]`` and a small random factor: zeros would stay zero."""
        generator = torch.Generator().manual_seed(0)
        factor = torch.randn(self.num_params * self.rank, generator=generator, dtype=torch.float64).to(loc)
        spread = (self.num_params / self.rank) ** 0.5  # half of the variance is the factor's
        return torch.cat([loc, torch.full_like(loc, math.log(scale * 0.5**0.5)), (spread * factor).asinh()])

    def noise_size(self, num_params: int) -> int:
        """Return how many standard normal numbers a draw uses."""
        return num_params + self.rank

    def draw(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return ``theta[P]`` for ``noise[rank + P]``."""
        loc, covariance = self.gaussian(params)
        return loc + covariance.sqrt_matmul(noise)

    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the log density ``[]`` of ``theta[P]``."""
        loc, covariance = self.gaussian(params)
        constant = self.num_params * math.log(2 * math.pi)
        return -0.5 * (covariance.mahalanobis(theta - loc) + covariance.logdet() + constant)

    def at(self, params: Tensor, frame: Frame) -> Tensor:
        """Return the parameters ``[Q]`` of what ``params[Q]`` are in a frame."""
        loc, log_scale, factor = params.split([self.num_params, self.num_params, self.num_params * self.rank])
        return torch.cat([frame.loc + frame.root @ loc, frame.scale.log() + log_scale, factor])

    def gaussian(self, params: Tensor) -> tuple[Tensor, LowRankPlusDiagonal]:
        """Return mean ``[P]`` and covariance."""
        loc, log_scale, factor = params.split([self.num_params, self.num_params, self.num_params * self.rank])
        scale = log_scale.exp()
        unit = factor.sinh().reshape(self.num_params, self.rank) / math.sqrt(self.num_params)
        return loc, LowRankPlusDiagonal(scale[:, None] * unit, scale)


@dataclass(frozen=True)
class LowRankVI(GaussianVI):
    """Gaussian with a diagonal plus low-rank covariance, the family of Pyro's AutoLowRankMultivariateNormal.

    Parameters
    ----------
    rank : int
        Number of directions along which entries are correlated.
    num_steps, num_particles, learning_rate, schedule, batch_size, num_averaged, tolerance, num_restarts, keep,
    kl_annealing, kl_weighting
        As for :class:`bnnzoo.inference.MeanFieldVI`.
    temperature, init, init_scale
        As for :class:`bnnzoo.inference.MeanFieldVI`.

    References
    ----------
    Ong, Nott and Smith (2018), Gaussian variational approximation with a factor covariance structure, JCGS 27.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(correlation=0.0)
    >>> posterior = bz.fit(target.model, LowRankVI(rank=1, num_steps=500), *target.data)
    >>> posterior.covariance.factor.shape
    torch.Size([3, 1])
    """

    rank: Count = 10

    default_steps: ClassVar[int] = 3000

    def family(self, num_params: int) -> LowRank:
        """Return the family of approximations to ``num_params`` parameters."""
        return LowRank(num_params, self.rank)
