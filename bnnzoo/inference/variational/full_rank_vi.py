"""Full-rank variational inference: the best Gaussian with any covariance."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.posterior.covariance import Dense
from bnnzoo.core.posterior.stored import Stored
from bnnzoo.inference.optimise.pathfinder import Frame
from bnnzoo.inference.variational.fit_family import GaussianVI

__all__ = ["FullRank", "FullRankVI"]


@dataclass(frozen=True)
class FullRank(Stored):
    r"""Gaussians by mean and Cholesky factor: ``params`` has P means, P log diagonal entries and those below the diagonal.

    .. math:: L = \operatorname{diag}(d) \left( I + \sinh(B) / \sqrt{P} \right)

    with B strictly lower triangular. Rows are in units of their diagonal entry, and entries below it are scaled, because an
    optimiser moves all P (P - 1) / 2 of them by the same amount in its first steps: unscaled, the condition number of L then
    grows exponentially with P, and with it the score of q, until no number can hold it. The hyperbolic sine lets the large
    entries of strong correlations grow by factors, as the exponential does on the diagonal.
    """

    num_params: int

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return parameters with the given means ``[P]`` and independent entries of one standard deviation."""
        below = loc.new_zeros(self.num_params * (self.num_params - 1) // 2)
        return torch.cat([loc, torch.full_like(loc, math.log(scale)), below])

    def noise_size(self, num_params: int) -> int:
        """Return how many standard normal numbers a draw uses."""
        return num_params

    def draw(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return ``theta[P]`` for ``noise[P]``."""
        return params[: self.num_params] + self._scale_tril(params) @ noise

    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the log density ``[]`` of ``theta[P]``."""
        centred = (theta - params[: self.num_params])[:, None]
        white = torch.linalg.solve_triangular(self._scale_tril(params), centred, upper=False)
        logdet = params[self.num_params : 2 * self.num_params].sum()
        return -0.5 * (white**2).sum() - logdet - 0.5 * self.num_params * math.log(2 * math.pi)

    def whiten(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the ``noise[P]`` whose draw is ``theta[P]``."""
        centred = (theta - params[: self.num_params])[:, None]
        return torch.linalg.solve_triangular(self._scale_tril(params), centred, upper=False)[:, 0]

    def at(self, params: Tensor, frame: Frame) -> Tensor:
        """Return the parameters ``[Q]`` of what ``params[Q]`` are in a frame."""
        size = self.num_params
        tril = frame.root @ self._scale_tril(params)
        diagonal = tril.diagonal()
        rows, columns = torch.tril_indices(size, size, -1, device=params.device)
        below = (tril / diagonal[:, None]).reshape(-1).index_select(0, rows * size + columns)
        return torch.cat([frame.loc + frame.root @ params[:size], diagonal.log(), (below * math.sqrt(size)).asinh()])

    def gaussian(self, params: Tensor) -> tuple[Tensor, Dense]:
        """Return mean ``[P]`` and covariance."""
        return params[: self.num_params], Dense(self._scale_tril(params))

    def _scale_tril(self, params: Tensor) -> Tensor:
        size = self.num_params
        rows, columns = torch.tril_indices(size, size, -1, device=params.device)
        diagonal, below = params[size : 2 * size].exp(), params[2 * size :].sinh() / math.sqrt(size)
        flat = params.new_zeros(size * size).index_copy(0, rows * size + columns, below)
        unit = flat.reshape(size, size) + torch.eye(size, dtype=params.dtype, device=params.device)
        return diagonal[:, None] * unit


@dataclass(frozen=True, kw_only=True)
class FullRankVI(GaussianVI):
    """Gaussian with any covariance over unconstrained space, the family of Pyro's AutoMultivariateNormal.

    For models of up to a few hundred parameters: it learns P (P + 1) / 2 numbers of the covariance. Where the
    posterior is Gaussian the gradient has no noise at the optimum, and the fit is exact.

    Parameters
    ----------
    num_steps, num_particles, learning_rate, schedule, batch_size, num_averaged, tolerance, num_restarts, keep,
    kl_annealing, kl_weighting
        As for :class:`bnnzoo.inference.MeanFieldVI`.
    temperature, init, init_scale
        As for :class:`bnnzoo.inference.MeanFieldVI`.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, FullRankVI(), *target.data)
    >>> bool(torch.allclose(posterior.covariance.dense(), target.covariance, rtol=0.02, atol=1e-4))
    True
    """

    default_steps: ClassVar[int] = 3000

    def family(self, num_params: int) -> FullRank:
        """Return the family of approximations to ``num_params`` parameters."""
        return FullRank(num_params)
