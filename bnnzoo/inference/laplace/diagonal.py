"""Diagonal Laplace approximation: each parameter by itself, for networks of any size."""

from dataclasses import dataclass, field
from typing import ClassVar

from bnnzoo.core.covariance import Diagonal
from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Gaussian
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import Curvature, choose_curvature, hessian_diagonal, sum_over_rows
from bnnzoo.inference.laplace.laplace import LaplaceError, best_member, laplace_posterior

__all__ = ["DiagonalLaplace"]


@dataclass(frozen=True)
class DiagonalLaplace:
    r"""Gaussian at the mode with the diagonal of the precision of :class:`bnnzoo.inference.Laplace` and nothing else of it.

    .. math:: \sigma_i^{-2} = \sum_n (R_n^T J_n)_{\cdot i}^2 - \partial_i^2 \log p(\theta^*)

    Parameters
    ----------
    map : MAP
        How the mode is found.
    curvature : {"ggn", "empirical_fisher"} or MonteCarloFisher
        Of the likelihood.
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
    curvature: Curvature = "ggn"
    damping: float = 0.0

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the diagonal of the curvature there; see :func:`bnnzoo.fit`.

        Raises
        ------
        LaplaceError
            If a precision is not positive.
        ValueError
            If the exact Hessian is asked for.
        """
        if self.curvature == "hessian":
            raise ValueError("DiagonalLaplace(curvature='hessian'): write 'ggn', or use Laplace(curvature='hessian').")
        found = self.map.run(density, context)
        theta, _ = best_member(found)
        curvature = choose_curvature(self.curvature, density)
        likelihood = sum_over_rows(density, theta, curvature, lambda root: (root**2).sum(0))
        precision = likelihood - hessian_diagonal(density.log_prior, theta) + self.damping
        if not bool((precision > 0).all()):
            raise LaplaceError(
                f"The diagonal precision at the mode is not positive: its smallest entry is {float(precision.min()):.3g}. Give "
                f"every site a proper prior, or add damping={-2 * float(precision.min()):.2g}."
            )
        return laplace_posterior(density, found, curvature, theta, Diagonal(precision.rsqrt()))
