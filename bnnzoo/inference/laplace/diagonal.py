"""Diagonal Laplace approximation: independent parameters, for networks of any size."""

from dataclasses import dataclass, field
from typing import ClassVar

from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import RowCurvature, choose_curvature, sum_over_rows
from bnnzoo.inference.laplace.family import (
    LaplaceError,
    LaplaceSettings,
    Mode,
    best_approximation,
    find_modes,
    hierarchical_hint,
    laplace_posterior,
    warn_of_joint_mode,
)
from bnnzoo.inference.laplace.hessian_products import hessian_diagonal

__all__ = ["DiagonalLaplace"]


@dataclass(frozen=True)
class DiagonalLaplace(LaplaceSettings):
    r"""Gaussian at the mode whose precision is the diagonal of that of :class:`bnnzoo.inference.Laplace`.

    .. math:: \sigma_i^{-2} = \sum_n (R_n^T J_n)_{\cdot i}^2 - \partial_i^2 \log p(\theta^*)

    Parameters
    ----------
    map : MAP
        How the mode is found.
    curvature : {"ggn", "empirical_fisher"} or MonteCarloFisher
        Curvature of the likelihood. For the exact Hessian use :class:`bnnzoo.inference.Laplace`.
    damping : float
        Added to each precision.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, DiagonalLaplace(), *target.data)
    >>> bool(torch.allclose(posterior.covariance.scale, target.mean_field_sd()))
    True
    """

    map: MAP = field(default_factory=MAP)
    curvature: RowCurvature = field(default="ggn", kw_only=True)

    needs: ClassVar[frozenset[Need]] = frozenset()
    by_density: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the diagonal of the curvature there; see :func:`bnnzoo.fit`.

        Raises
        ------
        LaplaceError
            If a precision is not positive.
        """
        modes = find_modes(self, density, context)
        curvature = choose_curvature(self.curvature, density, modes[0].theta)
        warn_of_joint_mode(density)

        def around(mode: Mode) -> Gaussian:
            likelihood = sum_over_rows(density, mode.theta, curvature, lambda root: (root**2).sum(0))
            precision = likelihood - hessian_diagonal(density.log_prior, mode.theta) + self.damping
            if not bool((precision > 0).all()):
                smallest = float(precision.min())
                raise LaplaceError(
                    f"The diagonal precision at the mode is not positive: its smallest entry is {smallest:.3g}. Give every "
                    f"site a proper prior, or add damping={max(-2 * smallest, 1e-6):.2g}.{hierarchical_hint(density)}"
                )
            return laplace_posterior(density, mode, curvature, Diagonal(precision.rsqrt()))

        return best_approximation(modes, around)[1]
