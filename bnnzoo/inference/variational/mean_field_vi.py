"""Mean-field variational inference: the best Gaussian with independent entries."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.stored import Stored
from bnnzoo.inference.optimise.batches import batches_of
from bnnzoo.inference.optimise.pathfinder import Frame
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.variational.elbo import Bound, Reparametrised
from bnnzoo.inference.variational.fit_family import GaussianVI
from bnnzoo.inference.variational.mean_field_bound import MeanFieldBound, gaussian_sites
from bnnzoo.inference.variational.noisy_layers import Estimator, noisy_layers

__all__ = ["MeanField", "MeanFieldVI"]


@dataclass(frozen=True)
class MeanField(Stored):
    """Gaussians with independent entries; the parameters are the means and the log standard deviations."""

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return parameters ``[2 P]`` with the given means ``[P]`` and one standard deviation."""
        return torch.cat([loc, torch.full_like(loc, math.log(scale))])

    def noise_size(self, num_params: int) -> int:
        """Return how many standard normal numbers a draw uses."""
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

    def whiten(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the ``noise[P]`` whose draw is ``theta[P]``."""
        loc, log_scale = params.chunk(2)
        return (theta - loc) / log_scale.exp()

    def at(self, params: Tensor, frame: Frame) -> Tensor:
        """Return the parameters ``[2 P]`` of what ``params[2 P]`` are in a frame."""
        loc, log_scale = params.chunk(2)
        return torch.cat([frame.loc + frame.root @ loc, frame.scale.log() + log_scale])

    def gaussian(self, params: Tensor) -> tuple[Tensor, Diagonal]:
        """Return mean ``[P]`` and covariance."""
        loc, log_scale = params.chunk(2)
        return loc, Diagonal(log_scale.exp())


@dataclass(frozen=True, kw_only=True)
class MeanFieldVI(GaussianVI):
    r"""Gaussian with independent entries over unconstrained space, the family of Pyro's AutoDiagonalNormal.

    It maximises the evidence lower bound, the expected log likelihood of all data less the whole divergence from the prior,

    .. math:: E_q[\log p(y \mid \theta)] - KL(q \,\|\, p),

    by Adam on reparametrised gradients. Particles are antithetic pairs from a Sobol sequence, the learning rate
    falls along a cosine, and the last iterates are averaged: without these three, means and scales would still jitter
    by several per cent at the end. Mean-field variances are those of each entry given all others, hence too small
    wherever entries are correlated.

    Parameters
    ----------
    num_steps : int, optional
        Steps of Adam. Default: searches of 500, 1,000, 2,000, 4,000 and 8,000 steps follow each other until one no longer raises
        the bound by more than 0.02 nats and its Monte Carlo error; ``posterior.info.config`` says how many steps that took, and
        whether the bound has ``converged``. For networks, mini-batches and more than 300 parameters: one search of 2,000 steps,
        of 3,000 for correlated Gaussians.
    num_particles : int
        Draws of theta in each estimate of the bound.
    learning_rate : float
        Of the first step.
    schedule : {"cosine", "constant"}
        Whether the learning rate falls to zero along half a cosine.
    batch_size : int, optional
        Rows of a mini-batch; default: all rows.
    num_averaged : int, optional
        The result is the mean of this many last iterates; default: the last fifth.
    tolerance : float, optional
        Stop early when the mean of the bound over ``num_averaged`` steps differs by less than this, relatively, from its
        mean over as many steps before. Restarts stop together.
    num_restarts : int
        Independent fits, run in one batch, or one by one on ``executor=``; each is a chain of the result.
    keep : {"all", "best"}
        Whether to return the equally weighted mixture of all restarts or the one with the highest bound.
    kl_annealing : float
        Fraction of the steps over which the weight of the divergence rises from 0; the weights average to one and end at
        one.
    kl_weighting : {"uniform", "geometric"}
        Whether the divergence counts the same in every mini-batch of a pass over the data, or twice as much in each as in the
        next, heavy first and light last (Blundell et al. 2015, section 3.4). The weights of a pass average to one.
    temperature : float
        Above 1 the entropy counts more, below 1 less (a cold posterior); only 1 approximates the posterior.
    init : Tensor, Posterior or Method, optional
        Where the means start, ``[num_restarts, P]``, or where to find starting points, such as ``MAP()``.
    init_scale : float, optional
        Initial standard deviation of every entry, in unconstrained space. Default: the search starts at the best of the
        Gaussians that curvature gives on the way from the start to the mode, and steps are in units of its scales, so that data
        need not be standardised; 0.1 for networks, mini-batches and more than 300 parameters.
    estimator : {"shared", "local", "flipout"}
        How the weights of a network are drawn. "shared": once a particle, for all rows. "local" (local
        reparametrisation) and "flipout": in linear and convolutional layers as if drawn separately for every row, which
        lowers the variance of the gradient where a single draw for a whole batch would dominate it. All have the same
        mean. "local" draws the outputs of linear layers, and uses flipout in convolutions, where the outputs of a row
        share weights.
    closed_form_kl : bool, optional
        Compute the divergence from a Gaussian prior in closed form instead of from the draws. By default for "local" and
        "flipout" only: with "shared", the noise of the likelihood and of the divergence cancel near the optimum.

    References
    ----------
    Kucukelbir et al. (2017), Automatic differentiation variational inference, JMLR 18. Blundell et al. (2015), Weight
    uncertainty in neural networks, ICML. Kingma, Salimans and Welling (2015), Variational dropout and the local
    reparameterization trick, NeurIPS. Wen, Vicol, Ba, Tran and Grosse (2018), Flipout, ICLR. Zhang, Carpenter, Gelman and Vehtari
    (2022), Pathfinder: parallel quasi-Newton variational inference, JMLR 23.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(correlation=0.0)
    >>> posterior = bz.fit(target.model, bz.MeanFieldVI(), *target.data)
    >>> bool(((posterior.loc - target.mean["w"]).abs() < 0.02 * target.sd["w"]).all())
    True
    """

    estimator: Estimator = "shared"
    closed_form_kl: bool | None = None

    def bound(self, density: LogDensity, family: Reparametrised) -> Bound:
        """Return how the bound is estimated; by default from one draw of the weights for all rows."""
        is_shared = self.estimator == "shared"
        is_closed = not is_shared if self.closed_form_kl is None else self.closed_form_kl
        if is_shared and not is_closed:
            return super().bound(density, family)
        batch = next(batches_of(self.batch_size).stream(density, MemberStreams(0, range(1))))
        layers = () if is_shared else noisy_layers(density, self.estimator, batch.data)
        return MeanFieldBound(density, layers, gaussian_sites(density) if is_closed else ())

    def family(self, num_params: int) -> MeanField:
        """Return the family of approximations to ``num_params`` parameters."""
        return MeanField()
