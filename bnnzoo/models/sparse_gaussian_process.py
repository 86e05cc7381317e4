"""Sparse Gaussian-process regression by inducing points, for many rows."""

from dataclasses import dataclass
from typing import ClassVar

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.linalg import cholesky, solve_triangular

from bnnzoo.models.kernels import KernelSites
from bnnzoo.models.likelihoods.likelihood import observe, value_or_site
from bnnzoo.models.likelihoods.predictor import Unknown
from bnnzoo.models.process_arguments import refuse_bad_inputs, refuse_bad_targets

__all__ = ["SparseGaussianProcess", "inducing_points"]

NAME = "gaussian_process"


@dataclass(frozen=True, eq=False)
class SparseGaussianProcess:
    r"""The Pyro model ``model(x, y=None)`` of the fully independent training conditional; made by `gaussian_process`.

    With v the latent site ``"inducing"``, Z the inducing points and :math:`A = L_{ZZ}^{-1} K_{ZX}`, rows are independent:

    .. math:: v \sim N(0, I), \quad y \mid v \sim N(m + A^T v, \mathrm{diag}(K_{XX} - A^T A) + \sigma^2 I)
    """

    kernel: KernelSites
    scale: Unknown
    mean: float | TorchDistributionMixin
    inducing: Tensor

    observes: ClassVar[str] = "y"
    """Name of the site without whose observation a fit is a mistake."""

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Sample the hyperparameters, the inducing values and the target, or observe the target if `y` is given.

        Parameters
        ----------
        x : Tensor [N, D]
        y : Tensor [N], optional
        """
        refuse_bad_inputs(NAME, x)
        if y is not None:
            refuse_bad_targets(NAME, x, y)
        if x.shape[1] != self.inducing.shape[1]:
            raise ValueError(
                f"{NAME}: x has {x.shape[1]} columns, but the inducing points have {self.inducing.shape[1]}: choose them with "
                f"models.inducing_points(x, num_points)."
            )
        covariance, points = self.kernel.sample(x), self.inducing.to(x)
        scale, mean = value_or_site("sigma", self.scale), value_or_site("mean", self.mean)
        within = covariance(points, points)
        jitter = torch.finfo(x.dtype).eps ** 0.5
        factor = cholesky(within + jitter * torch.eye(len(points)).to(x))
        across = solve_triangular(factor, covariance(points, x), upper=False)
        values = pyro.sample("inducing", dist.Normal(torch.zeros(len(points)).to(x), 1.0).to_event(1))
        unexplained = (covariance(x, x, diag=True) - across.square().sum(0)).clamp(min=0.0)
        return observe(dist.Normal(mean + across.mT @ values, (unexplained + scale**2).sqrt(), validate_args=False), y)


def inducing_points(x: Tensor, num_points: int, seed: int = 0) -> Tensor:
    """Return inducing points ``[M, D]`` for a sparse Gaussian process: distinct rows of the inputs, at random.

    Parameters
    ----------
    x : Tensor [N, D]
        Inputs of the training data.
    num_points : int
        M, at most the number of distinct rows.
    seed : int

    Raises
    ------
    ValueError
        If x is not [N, D], or has fewer than `num_points` distinct rows.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.models.inducing_points(torch.linspace(-1, 1, 100)[:, None], 5).shape
    torch.Size([5, 1])
    """
    refuse_bad_inputs("inducing_points", x)
    rows = x.unique(dim=0)
    distinct = len(rows)
    if isinstance(num_points, bool) or not isinstance(num_points, int) or not 1 <= num_points <= distinct:
        raise ValueError(
            f"inducing_points: num_points must be a whole number from 1 to {distinct}, the number of distinct rows of x, but is "
            f"{num_points!r}."
        )
    generator = torch.Generator().manual_seed(seed)
    return rows[torch.randperm(distinct, generator=generator)[:num_points].to(x.device)]
