"""The Laplace approximation: a Gaussian at the mode with the curvature of the log density there."""

from dataclasses import dataclass, field
from typing import ClassVar

from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import choose_curvature
from bnnzoo.inference.laplace.dense import DenseSettings, dense_posterior, refuse_too_large
from bnnzoo.inference.laplace.family import (
    Mode,
    best_approximation,
    find_modes,
    warn_if_not_converged,
    warn_of_joint_mode,
)
from bnnzoo.inference.laplace.hyperparameter_marginal import over_scales
from bnnzoo.inference.laplace.refine import refined

__all__ = ["Laplace"]


@dataclass(frozen=True)
class Laplace(DenseSettings):
    r"""Gaussian over unconstrained space, centred at the posterior mode, with a dense covariance ``[P, P]``.

    .. math:: q(\theta) = N\left(\theta^*, \left( -\nabla^2 \log p(\theta^*) + C \right)^{-1}\right)

    where C is the curvature of minus the log likelihood: the generalised Gauss-Newton matrix, which is positive
    semi-definite and for exponential families equals the Fisher information, or the exact Hessian. Predictions of a
    network under a Gauss-Newton posterior should come from the network linearised at the mode; :func:`bnnzoo.predict`
    does so.

    Parameters
    ----------
    map : MAP
        How the mode is found. Of several members the one with the highest evidence is used. A single one without an ``init``, of
        a model without a network or hierarchy, begins at the best of the modes that eight searches by L-BFGS find, and takes no
        steps of Adam.
    curvature : {"ggn", "hessian", "empirical_fisher"} or MonteCarloFisher, optional
        Curvature of the likelihood. Default: the exact Hessian for models without networks, that is without matrices of weights,
        and GGN for networks and where the Hessian is not positive definite, with a warning; the Hessian also for networks
        whose likelihood has no parameters that can be read, with a warning. The posterior's ``info.config`` says which it was.
    integrate : bool
        Integrate over the scales of a hierarchy, as :class:`HierarchicalLaplace` does, where the model has one and no network, up
        to six of them: the mode of scales and effects together is far from the posterior's mass. The posterior is then a mixture,
        and its ``info.config["integrated_over"]`` names the sites. False, ``map`` with an ``init``, and a ``curvature`` that is
        asked for give the Gaussian at the joint mode.
    damping : float
        Added to the diagonal of the precision.
    max_bytes : float, optional
        Refuse to start if more memory is needed. Default: all of the machine's.

    References
    ----------
    MacKay (1992), A practical Bayesian framework for backpropagation networks, Neural
    Computation 4. Immer, Korzepa and Bauer (2021), Improving predictions of Bayesian neural nets via local
    linearization, AISTATS. Daxberger et al. (2021), Laplace redux, NeurIPS.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data)
    >>> bool(torch.allclose(posterior.covariance.dense(), target.covariance))
    True
    >>> bool(torch.isclose(bz.inference.log_marginal_likelihood(posterior), target.log_evidence))
    True
    """

    map: MAP = field(default_factory=MAP)
    integrate: bool = field(default=True, kw_only=True)

    needs: ClassVar[frozenset[Need]] = frozenset()
    by_density: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Find the mode and the curvature there, given scales of a hierarchy if there are any; see :func:`bnnzoo.fit`.

        Raises
        ------
        LaplaceError
            If the matrix does not fit into memory or is not positive definite.
        """
        if self.integrate and self.curvature is None and self.map.init is None:
            by_scales = over_scales(self, self.damping, density, context)
            if by_scales is not None:
                return by_scales
        refuse_too_large(density.num_params, density.dtype, self.max_bytes)
        modes = find_modes(self, density, context, refines=self.curvature is None)
        curvature = choose_curvature(self.curvature, density, modes[0].theta, is_exact=True)

        def around(mode: Mode) -> Gaussian:
            return dense_posterior(self, density, mode, curvature)

        mode, found = best_approximation(modes, around)
        if self.map.polish_steps:
            is_newton = found.info.config["curvature"] == "hessian"
            mode, found = refined(density, mode, found, around, is_newton=is_newton)
        warn_of_joint_mode(density)
        warn_if_not_converged(density, mode, found.covariance)
        return found
