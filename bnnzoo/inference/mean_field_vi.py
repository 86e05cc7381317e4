"""Mean-field variational inference: the best Gaussian with independent entries."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.covariance import Diagonal
from bnnzoo.core.density import LogDensity
from bnnzoo.core.posterior import Gaussian, Mixture
from bnnzoo.core.types import Data, Need, Run
from bnnzoo.inference.optimise import Schedule
from bnnzoo.inference.starts import Start
from bnnzoo.inference.variational import Keep, fit_gaussian

__all__ = ["MeanField", "MeanFieldVI"]


@dataclass(frozen=True)
class MeanField:
    """Gaussians with independent entries; the parameters are the means and the log standard deviations."""

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return parameters ``[2 P]`` with the given means ``[P]`` and one standard deviation."""
        return torch.cat([loc, torch.full_like(loc, math.log(scale))])

    def noise_size(self, num_params: int) -> int:
        """Return the number of standard normal numbers a draw takes."""
        return num_params

    def draw(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return ``theta[P]`` for ``noise[P]``."""
        loc, log_scale = params.chunk(2)
        return loc + log_scale.exp() * noise

    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the log density ``[]`` of ``theta[P]``."""
        loc, log_scale = params.chunk(2)
        standardised = (theta - loc) * (-log_scale).exp()
        return -0.5 * (standardised**2).sum() - log_scale.sum() - 0.5 * loc.numel() * math.log(2 * math.pi)

    def gaussian(self, params: Tensor) -> tuple[Tensor, Diagonal]:
        """Return mean ``[P]`` and covariance."""
        loc, log_scale = params.chunk(2)
        return loc, Diagonal(log_scale.exp())


@dataclass(frozen=True)
class MeanFieldVI:
    r"""Gaussian with independent entries over unconstrained space, the family of Pyro's AutoDiagonalNormal.

    It maximises the evidence lower bound, the log likelihood of all data less the whole divergence from the prior,

    .. math:: E_q[\log p(y \mid \theta)] - KL(q \,\|\, p),

    by Adam on reparametrised gradients. Particles come in antithetic pairs from a Sobol sequence, the learning rate
    falls along a cosine, and the last iterates are averaged: without the three, means and scales would still jitter
    by several per cent when the steps end. Beware of what it can represent: its variances are those of each entry
    given all others, hence too small wherever entries depend on each other.

    Parameters
    ----------
    num_steps : int
        Steps of Adam.
    num_particles : int
        Draws of theta in each estimate of the bound.
    learning_rate : float
        Of the first step.
    schedule : {"cosine", "constant"}
        Whether the learning rate falls to zero along half a cosine.
    batch_size : int, optional
        Rows of a mini-batch; all of them by default.
    num_averaged : int, optional
        Number of last iterates that the result is the mean of; a fifth of ``num_steps`` unless given.
    tolerance : float, optional
        Stop early where the mean of the bound over ``num_averaged`` steps differs by less than this, relatively, from
        the same number of steps before.
    num_restarts : int
        Independent fits, run in one batch; each is a chain of the result.
    keep : {"all", "best"}
        Whether to return the equally weighted mixture of all restarts or the one with the highest bound.
    kl_annealing : float
        Share of the steps over which the weight of the divergence rises from 0; the weights average to one and end at
        one.
    temperature : float
        Above 1 the entropy counts more, below 1 less (a cold posterior); only 1 approximates the posterior.
    init : Tensor, Posterior or Method, optional
        Where the means start, ``[num_restarts, P]``, or where to take them from, such as ``MAP()``.
    init_scale : float
        Standard deviation that every entry starts with, in unconstrained space.

    References
    ----------
    Kucukelbir et al. (2017), Automatic differentiation variational inference, JMLR 18. Blundell et al. (2015), Weight
    uncertainty in neural networks, ICML.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.MeanFieldVI(), *target.data)
    >>> bool(((posterior.loc - target.mean["w"]).abs() < 0.02 * target.sd["w"]).all())
    True
    """

    num_steps: int = 2000
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

    def run(self, density: LogDensity, data: Data, run: Run) -> Gaussian | Mixture:
        """Maximise the evidence lower bound; see :func:`bnnzoo.fit`.

        Returns
        -------
        Gaussian or Mixture
            One component a restart, with the bound's estimates in ``info.fit_stats["elbo"]``.
        """
        return fit_gaussian(self, MeanField(), density, data, run)
