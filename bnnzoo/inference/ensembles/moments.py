"""Running moments of the iterates of a training run, and the Gaussian that they make."""

from collections import deque

import torch
from torch import Tensor

from bnnzoo.core.posterior.covariance import LowRankPlusDiagonal

__all__ = ["IterateMoments"]


class IterateMoments:
    r"""Mean and variances of every so many-th iterate, and the last few of them: an observer of a training run.

    Means and sums of squared deviations are updated as by Welford, which does not cancel digits:

    .. math:: \bar\theta_n = \bar\theta_{n-1} + \frac{\theta_n - \bar\theta_{n-1}}{n}, \qquad
        S_n = S_{n-1} + (\theta_n - \bar\theta_{n-1}) (\theta_n - \bar\theta_n)

    Parameters
    ----------
    every : int
        Steps between two iterates that count.
    after : int
        Steps before the first of them.
    rank : int
        Number of last iterates to keep.

    Examples
    --------
    >>> moments = IterateMoments(every=1, after=0, rank=2)
    >>> for step, x in enumerate((1.0, 2.0, 6.0), start=1):
    ...     moments(step, torch.tensor([[x]]), torch.zeros(1))
    >>> moments.mean.item(), moments.variance.item(), moments.num_iterates
    (3.0, 7.0, 3)
    """

    def __init__(self, every: int, after: int, rank: int) -> None:
        self._every, self._after = every, after
        self._last: deque[Tensor] = deque(maxlen=rank)
        self.mean, self._squares = torch.zeros(()), torch.zeros(())
        self.num_iterates = 0

    def __call__(self, step: int, params: Tensor, value: Tensor) -> None:
        """Count the iterate ``[C, P]`` if it is due."""
        if step <= self._after or (step - self._after) % self._every:
            return
        self.num_iterates += 1
        before = params - self.mean
        self.mean = self.mean + before / self.num_iterates
        self._squares = self._squares + before * (params - self.mean)
        self._last.append(params)

    @property
    def variance(self) -> Tensor:
        """Unbiased variances ``[C, P]`` of the iterates."""
        return self._squares / (self.num_iterates - 1)

    @property
    def deviations(self) -> Tensor:
        """The last iterates minus the mean ``[C, P, K]``."""
        return torch.stack(tuple(self._last), -1) - self.mean[..., None]

    def covariances(self, scale: float, diagonal: float) -> list[LowRankPlusDiagonal]:
        r"""Return one covariance for each member.

        .. math:: s^2 \left( d \, \mathrm{diag}(v) + (1 - d) \frac{D D^T}{K - 1} \right)

        Parameters
        ----------
        scale : float
            s.
        diagonal : float
            d, the weight of the variances v; the other part are the K deviations D.
        """
        factors = scale * ((1 - diagonal) / (len(self._last) - 1)) ** 0.5 * self.deviations
        smallest = torch.finfo(self.mean.dtype).eps * self.mean.abs().clamp(
            min=1.0
        )  # what rounding makes of no variance
        scales = scale * diagonal**0.5 * self.variance.sqrt().maximum(smallest)
        return [LowRankPlusDiagonal(*pair) for pair in zip(factors, scales, strict=True)]
