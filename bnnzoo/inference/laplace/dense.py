"""Dense precision matrices: whether they fit into memory, and the Cholesky factors of their inverses."""

import os
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import NotConvergedWarning
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Dense, Embedded
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.core.settings import Positive
from bnnzoo.inference.laplace.curvature import Curvature, has_gauss_newton, precision
from bnnzoo.inference.laplace.family import LaplaceError, LaplaceSettings, Mode, hierarchical_hint, laplace_posterior

__all__ = ["DenseSettings", "dense_covariance", "dense_posterior", "refuse_too_large", "scale_tril_of"]

DENSE_COPIES = 4  # of the matrix that are alive at once: precision, its factor, the inverse's, one to work with


@dataclass(frozen=True, kw_only=True)
class DenseSettings(LaplaceSettings):
    """Settings of Laplace approximations that hold a dense matrix.

    Parameters
    ----------
    curvature, damping
        See :class:`bnnzoo.inference.laplace.family.LaplaceSettings`.
    max_bytes : float, optional
        Refuse to start if more memory is needed. Default: all of the machine's.
    """

    max_bytes: Positive | None = None


def refuse_too_large(num_params: int, dtype: torch.dtype, max_bytes: float | None) -> None:
    """Refuse a dense covariance that would not fit into memory."""
    needed = DENSE_COPIES * num_params**2 * dtype.itemsize
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if max_bytes is None else max_bytes
    if needed > available:
        raise LaplaceError(
            f"A dense covariance of {num_params} parameters needs {needed:.3g} bytes, and there are {available:.3g}. "
            f"Use LastLayerLaplace(), LowRankLaplace(), KFACLaplace() or DiagonalLaplace() instead."
        )


def dense_posterior(
    method: DenseSettings, density: LogDensity, mode: Mode, curvature: Curvature, index: Tensor | None = None
) -> Gaussian:
    """Return the Gaussian at a mode, over the entries ``index[R]`` of theta or all.

    Where the exact Hessian was not asked for and is not positive definite, the Gauss-Newton matrix replaces it.

    Raises
    ------
    LaplaceError
        If the precision is not positive definite.

    Warns
    -----
    NotConvergedWarning
        If the Gauss-Newton matrix replaces the Hessian.
    """
    try:
        found = dense_covariance(density, mode.theta, curvature, method.damping, index)
    except LaplaceError as error:
        if method.curvature is not None or curvature != "hessian" or not has_gauss_newton(density, mode.theta):
            raise
        found, curvature = dense_covariance(density, mode.theta, "ggn", method.damping, index), "ggn"
        warnings.warn(
            f"{str(error).partition(':')[0]}: the point that the optimisation found is a saddle or flat, and the Gauss-Newton "
            f"matrix replaces the Hessian. Compare with NUTS(), or write curvature='ggn' to accept this.",
            NotConvergedWarning,
            stacklevel=3,
        )
    covariance = found if index is None else Embedded(found, index, density.num_params)
    return laplace_posterior(density, mode, curvature, covariance)


def dense_covariance(
    density: LogDensity, theta: Tensor, curvature: Curvature, damping: float, index: Tensor | None = None
) -> Dense:
    """Return the inverse ``[R, R]`` of the damped precision at ``theta[P]``, for the entries ``index[R]`` or all.

    Raises
    ------
    LaplaceError
        If the precision is not positive definite.
    """
    matrix = precision(density, theta, curvature, index)
    matrix = matrix + damping * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    if not bool(matrix.isfinite().all()):
        raise LaplaceError(
            "The curvature at the mode is not finite. Check the model's density there, or fit in float64."
            f"{hierarchical_hint(density)}"
        )
    try:
        return Dense(scale_tril_of(matrix).to(theta.dtype))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # public, but not in its __all__
        values = torch.linalg.eigvalsh(matrix)
    smallest = float(values[0])
    other = "use curvature='ggn', whose likelihood part cannot be indefinite, " if curvature == "hessian" else ""
    raise LaplaceError(
        f"The {curvature} precision at the mode is not positive definite: its most negative eigenvalue is "
        f"{smallest:.3g}, and {int((values <= 0).sum())} of {len(values)} are not positive. The mode may be a saddle or flat, "
        f"or the prior improper or too wide: run more optimisation steps (map=MAP(num_steps=...)), {other}give every site a "
        f"proper prior, or add damping={max(-2 * smallest, 1e-6):.2g}.{hierarchical_hint(density)}"
    )


def scale_tril_of(precision: Tensor) -> Tensor:
    """Return the lower Cholesky factor of the inverse of a positive definite ``precision[R, R]``.

    Raises
    ------
    torch.linalg.LinAlgError
        If it is not positive definite.
    """
    # With F the exchange of rows and columns, F P F = L L^T gives P^-1 = (F L^-T F)(F L^-T F)^T, lower triangular.
    flipped = torch.linalg.cholesky(precision.flip(0, 1))
    identity = torch.eye(len(precision), dtype=precision.dtype, device=precision.device)
    return torch.linalg.solve_triangular(flipped, identity, upper=False).mT.flip(0, 1)
