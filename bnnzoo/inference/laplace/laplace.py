"""The Laplace approximation: a Gaussian at the mode with the curvature of the log density there."""

import math
import os
import warnings
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.covariance import Covariance, Dense
from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Draws, Gaussian
from bnnzoo.core.sites import ModelError
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import Curvature, choose_curvature, precision, scale_tril_of
from bnnzoo.lowering.lowered import looped_value_and_grad

__all__ = ["Laplace", "LaplaceError", "NotConvergedWarning", "log_marginal_likelihood"]

MAX_DISTANCE = 0.1  # of the mode from where the climb ended, in posterior standard deviations
DENSE_COPIES = 4  # of the matrix that are alive at once: precision, its factor, the inverse's, one to work with


class LaplaceError(ValueError):
    """The curvature cannot be that of a Gaussian, or would not fit into memory; the message says what to do."""


class NotConvergedWarning(UserWarning):
    """The mode was not reached, so that the Gaussian sits beside it."""


@dataclass(frozen=True)
class Laplace:
    r"""Gaussian over unconstrained space at the posterior mode, with any structure of theta and dense covariance.

    .. math:: q(\theta) = N\left(\theta^*, \left( -\nabla^2 \log p(\theta^*) + C \right)^{-1}\right)

    where C is the curvature of the log likelihood: the generalised Gauss-Newton matrix, which for the families here
    is the Fisher information and never indefinite, or the exact Hessian. Network predictions under a GGN posterior
    should come from the network linearised at the mode, which is what :func:`bnnzoo.predict` does with it.

    Parameters
    ----------
    map : MAP
        How the mode is found. Of several members the one with the highest density is used.
    curvature : {"ggn", "hessian", "empirical_fisher"} or MonteCarloFisher, optional
        Of the likelihood. By default GGN where the likelihood's family can be read and the exact Hessian elsewhere; the
        posterior's ``info.config`` says which it was.
    damping : float
        Added to the precision's diagonal.
    max_bytes : float, optional
        Refuse to start if more memory is needed; all of the machine's unless given.

    References
    ----------
    MacKay (1992), A practical Bayesian framework for backpropagation networks, Neural
    Computation 4. Immer, Korzepa and Bauer (2021), Improving predictions of Bayesian neural nets via local
    linearization, AISTATS. Daxberger et al. (2021), Laplace redux, NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data)
    >>> bool(torch.allclose(posterior.covariance.dense(), target.covariance))
    True
    >>> bool(torch.isclose(log_marginal_likelihood(posterior), target.log_evidence))
    True
    """

    map: MAP = field(default_factory=MAP)
    curvature: Curvature | None = None
    damping: float = 0.0
    max_bytes: float | None = None

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the curvature there; see :func:`bnnzoo.fit`.

        Raises
        ------
        LaplaceError
            If the matrix would not fit into memory, or is not positive definite.
        """
        refuse_too_large(density.num_params, density.dtype, self.max_bytes)
        found = self.map.run(density, context)
        theta, gradient_norm = best_member(found)
        curvature = choose_curvature(self.curvature, density)
        matrix = damped(precision(density, theta, curvature), self.damping)
        covariance = Dense(positive_definite_scale_tril(matrix, curvature))
        warn_if_not_converged(density, theta, covariance, gradient_norm)
        return laplace_posterior(density, found, curvature, theta, covariance)


def log_marginal_likelihood(posterior: Gaussian) -> Tensor:
    r"""Return the Laplace estimate of the log evidence ``[]``.

    .. math:: \log p(y) \approx \log p(y, \theta^*) + \frac{R}{2} \log 2 \pi + \frac{1}{2} \log |\Sigma|

    with R the number of entries that vary. Exact for a linear model with Gaussian prior and noise.

    Parameters
    ----------
    posterior : Gaussian
        From a Laplace method.
    """
    density = posterior.density
    with torch.no_grad():
        joint = density.log_joint(posterior.loc, *density.data)
    rank, logdet = posterior.covariance.rank, posterior.covariance.logdet()
    return joint + 0.5 * rank * math.log(2 * math.pi) + 0.5 * logdet


def best_member(found: Draws) -> tuple[Tensor, float]:
    """Return the member ``[P]`` of an ensemble with the highest density, and its gradient norm."""
    best = int(found.info.sample_stats["lp"][0].argmax())
    return found.theta[0, best], float(found.info.sample_stats["gradient_norm"][0, best])


def laplace_posterior(
    density: LogDensity, found: Draws, curvature: Curvature, theta: Tensor, covariance: Covariance
) -> Gaussian:
    """Return the Gaussian at ``theta[P]``, one of the modes found; with Gauss-Newton curvature its predictions are linearised."""
    info = replace(found.info, sampling="iid", config={"curvature": str(curvature)}, sample_stats={})
    return Gaussian(density, info, theta, covariance, linearize_at=None if curvature == "hessian" else theta)


def refuse_too_large(num_params: int, dtype: torch.dtype, max_bytes: float | None) -> None:
    """Refuse a dense covariance that would not fit into memory."""
    needed = DENSE_COPIES * num_params**2 * dtype.itemsize
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if max_bytes is None else max_bytes
    if needed > available:
        raise LaplaceError(
            f"A dense covariance of {num_params} parameters needs {needed:.3g} bytes, and there are {available:.3g}. "
            f"Use LastLayerLaplace(), LowRankLaplace(), KFACLaplace() or DiagonalLaplace() instead."
        )


def refuse_reparametrised(density: LogDensity, name: str) -> None:
    """Refuse a network whose weights are computed from other latent sites, as reparametrisations do."""
    latent = [site.name for site in density.sites]
    for weight in (site for network in density.networks for site in network.sites.values()):
        if weight not in latent:
            raise ModelError(
                f"{name} needs weights that are latent sites, but the model computes {weight!r} from others (latent sites: "
                f"{', '.join(latent)}), as pyro.infer.reparam does. Leave the reparametrisation out, or use Laplace(), which "
                f"works with any Pyro model."
            )


def damped(matrix: Tensor, damping: float) -> Tensor:
    """Return ``matrix[R, R]`` with the damping added to its diagonal."""
    if damping < 0:
        raise ValueError(f"damping={damping}: write 0 or more.")
    return matrix + damping * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)


def positive_definite_scale_tril(matrix: Tensor, curvature: Curvature) -> Tensor:
    """Return the Cholesky factor of the covariance for a precision ``[R, R]``, or say why there is none."""
    if not bool(matrix.isfinite().all()):
        raise LaplaceError(
            "The curvature at the mode is not finite. Check the model's density there, or fit in float64."
        )
    try:
        return scale_tril_of(matrix)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # public, but not in its __all__
        values = torch.linalg.eigvalsh(matrix)
    raise LaplaceError(_indefinite(float(values[0]), int((values <= 0).sum()), len(values), str(curvature)))


def _indefinite(smallest: float, num_negative: int, size: int, curvature: str) -> str:
    other = "use curvature='ggn', whose likelihood part cannot be indefinite, " if curvature == "hessian" else ""
    return (
        f"The {curvature} precision at the mode is not positive definite: its most negative eigenvalue is "
        f"{smallest:.3g}, and {num_negative} of {size} are not positive. The mode may be a saddle or flat, or the "
        f"prior improper or too wide: climb longer (map=MAP(num_steps=...)), {other}give every site a proper prior, or add "
        f"damping={max(-2 * smallest, 1e-6):.2g}."
    )


def warn_if_not_converged(density: LogDensity, theta: Tensor, covariance: Covariance, gradient_norm: float) -> None:
    """Warn if one Newton step from ``theta`` would move it by a good part of a posterior standard deviation."""
    _, gradient = looped_value_and_grad(density.log_joint)(theta[None], *density.data)
    distance = float(covariance.sqrt_rmatmul(gradient[0]).norm())
    if distance > MAX_DISTANCE:
        warnings.warn(
            f"The mode was not reached: the gradient norm is {gradient_norm:.3g}, and the mode is about {distance:.2g} "
            f"posterior standard deviations away. Climb longer: Laplace(map=MAP(num_steps=..., polish_steps=...)).",
            NotConvergedWarning,
            stacklevel=3,
        )
