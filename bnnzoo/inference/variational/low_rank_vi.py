"""Low-rank variational inference: Gaussians whose entries depend on each other in a few directions."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.covariance import LowRankPlusDiagonal
from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Gaussian, Mixture
from bnnzoo.inference.optimise.train import Schedule
from bnnzoo.inference.starts import Start
from bnnzoo.inference.variational.elbo import Keep, fit_gaussian

__all__ = ["LowRank", "LowRankVI"]


@dataclass(frozen=True)
class LowRank:
    """Gaussians with covariance ``F F^T + diag(s^2)``: ``params`` has P means, P log scales and the factor ``[P, rank]``."""

    num_params: int
    rank: int

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return parameters with the given means ``[P]`` and a factor of small random numbers, since zeros would stay zero."""
        generator = torch.Generator().manual_seed(0)
        spread = scale * (0.5 / self.rank) ** 0.5
        factor = spread * torch.randn(self.num_params * self.rank, generator=generator, dtype=torch.float64).to(loc)
        return torch.cat([loc, torch.full_like(loc, math.log(scale * 0.5**0.5)), factor])

    def noise_size(self, num_params: int) -> int:
        """Return the number of standard normal numbers a draw takes."""
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

    def gaussian(self, params: Tensor) -> tuple[Tensor, LowRankPlusDiagonal]:
        """Return mean ``[P]`` and covariance."""
        loc, log_scale, factor = params.split([self.num_params, self.num_params, self.num_params * self.rank])
        return loc, LowRankPlusDiagonal(factor.reshape(self.num_params, self.rank), log_scale.exp())


@dataclass(frozen=True)
class LowRankVI:
    """Gaussian with a diagonal plus low-rank covariance, the family of Pyro's AutoLowRankMultivariateNormal.

    Parameters
    ----------
    rank : int
        Number of directions in which entries depend on each other.
    num_steps, num_particles, learning_rate, schedule, batch_size, num_averaged, tolerance, num_restarts, keep,
    kl_annealing
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
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, LowRankVI(rank=1, num_steps=500), *target.data)
    >>> posterior.covariance.factor.shape
    torch.Size([3, 1])
    """

    rank: int = 10
    num_steps: int = 3000
    num_particles: int = 8
    learning_rate: float = 0.03
    schedule: Schedule = "cosine"
    batch_size: int | None = None
    num_averaged: int | None = None
    tolerance: float | None = None
    num_restarts: int = 1
    keep: Keep = "all"
    kl_annealing: float = 0.0
    temperature: float = 1.0
    init: Start = None
    init_scale: float = 0.1

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Maximise the evidence lower bound; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If a setting is out of range.
        """
        return fit_gaussian(self, self.family(density.num_params), density, context)

    def family(self, num_params: int) -> LowRank:
        """Return the family of approximations to ``num_params`` parameters.

        Raises
        ------
        ValueError
            If the rank is out of range.
        """
        if self.rank < 1:
            raise ValueError(f"LowRankVI(rank={self.rank}): write 1 or more, or use MeanFieldVI().")
        return LowRank(num_params, self.rank)
