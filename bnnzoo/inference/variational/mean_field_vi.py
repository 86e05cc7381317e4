"""Mean-field variational inference: the best Gaussian with independent entries."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.covariance import Diagonal
from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.minibatch import RowIndices, select
from bnnzoo.core.posterior import Gaussian, Mixture
from bnnzoo.inference.optimise.train import Schedule
from bnnzoo.inference.starts import Start
from bnnzoo.inference.variational.elbo import Keep, fit_gaussian
from bnnzoo.inference.variational.mean_field_bound import MeanFieldBound, gaussian_sites
from bnnzoo.inference.variational.noisy_layers import Estimator, noisy_layers

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
    estimator : {"shared", "local", "flipout"}
        How the weights of a network are drawn. "shared": once a particle, for all rows. "local" (local
        reparametrisation) and "flipout": in linear and convolutional layers as if drawn for every row by itself, which
        takes noise out of the gradient where one draw for a whole batch would dominate it. All have the same mean.
        "local" draws the outputs of linear layers, and uses flipout in convolutions, where outputs of a row share
        weights.
    closed_form_kl : bool, optional
        Take the divergence from a Gaussian prior in closed form instead of from the draws. By default for "local" and
        "flipout" alone: with "shared", the noise of the likelihood and of the divergence cancel near the optimum.

    References
    ----------
    Kucukelbir et al. (2017), Automatic differentiation variational inference, JMLR 18. Blundell et al. (2015), Weight
    uncertainty in neural networks, ICML. Kingma, Salimans and Welling (2015), Variational dropout and the local
    reparameterization trick, NeurIPS. Wen, Vicol, Ba, Tran and Grosse (2018), Flipout, ICLR.

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
    estimator: Estimator = "shared"
    closed_form_kl: bool | None = None

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Maximise the evidence lower bound; see :func:`bnnzoo.fit`.

        Returns
        -------
        Gaussian or Mixture
            One component a restart, with the bound's estimates in ``info.fit_stats["elbo"]``.

        Raises
        ------
        ValueError
            If a setting is out of range.
        ModelError
            If the model has no layers for the estimator.
        """
        bound = self.bound(density)
        family, num_extra = self.family(density.num_params), 0 if bound is None else bound.num_extra
        return fit_gaussian(self, family, density, context, bound, num_extra)

    def bound(self, density: LogDensity) -> MeanFieldBound | None:
        """Return how the bound is estimated; None for one draw of the weights and nothing in closed form."""
        if self.estimator not in ("shared", "local", "flipout"):
            raise ValueError(f"MeanFieldVI(estimator={self.estimator!r}): write 'shared', 'local' or 'flipout'.")
        is_shared = self.estimator == "shared"
        is_closed = not is_shared if self.closed_form_kl is None else self.closed_form_kl
        if is_shared and not is_closed:
            return None
        rows = RowIndices(density.num_data, self.batch_size, torch.Generator())
        batch = density.data if rows.is_full else select(density.data, rows.next().to(density.device), density.num_data)
        layers = () if self.estimator == "shared" else noisy_layers(density, self.estimator, batch)
        return MeanFieldBound(density, layers, gaussian_sites(density) if is_closed else ())

    def family(self, num_params: int) -> MeanField:
        """Return the family of approximations to ``num_params`` parameters."""
        return MeanField()
