"""Low-rank Laplace approximation: the prior, updated along the directions about which the data are most informative."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vjp

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import rows_are_independent
from bnnzoo.core.posterior.covariance import LowRankPrecision
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.core.settings import Count
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import Curvature, choose_curvature, row_function
from bnnzoo.inference.laplace.family import (
    LaplaceError,
    LaplaceSettings,
    Mode,
    best_approximation,
    find_modes,
    hierarchical_hint,
    laplace_posterior,
    warn_if_not_converged,
    warn_of_joint_mode,
)
from bnnzoo.inference.laplace.hessian_products import hessian_diagonal

__all__ = ["LowRankLaplace", "precision_product"]

type Product = Callable[[Tensor], Tensor]
"""``v[P] -> [P]``, a symmetric matrix times a vector."""

BLOCK = 8192  # rows that go through the model together


@dataclass(frozen=True)
class LowRankLaplace(LaplaceSettings):
    r"""Gaussian at the mode whose precision is the prior's diagonal plus ``rank`` directions of the curvature.

    .. math::
        \Lambda = D^{1/2} \left( I + V \operatorname{diag}(s) V^T \right) D^{1/2}, \qquad
        D^{-1/2} \Lambda_{full} D^{-1/2} - I \approx V \operatorname{diag}(s) V^T

    where the full precision is that of :class:`bnnzoo.inference.Laplace`, D is the diagonal of the prior precision, and
    s are the eigenvalues of largest magnitude: the directions of theta about which the data are most informative
    relative to the prior. In all other directions the posterior equals the prior, so a low rank never makes variances
    too small. The directions come from Lanczos iterations (ARPACK, through scipy) on products with the curvature, two
    backward passes each; no matrix larger than P times ``2 * rank`` is stored. With ``rank`` P or more it is
    :class:`bnnzoo.inference.Laplace`.

    Parameters
    ----------
    rank : int
        Number of directions.
    map : MAP
        How the mode is found. Of several members the one with the highest evidence is used.
    curvature : {"ggn", "hessian", "empirical_fisher"} or MonteCarloFisher, optional
        Curvature of the likelihood; default as in :class:`bnnzoo.inference.Laplace`.
    damping : float
        Added to the prior precision.

    References
    ----------
    Spantini et al. (2015), Optimal low-rank approximations of Bayesian linear inverse problems, SIAM Journal on
    Scientific Computing 37. Maddox, Benton and Wilson (2020), Rethinking parameter counting in deep models, arXiv
    2003.02139.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, LowRankLaplace(rank=2), *target.data)
    >>> posterior.covariance.vectors.shape
    torch.Size([3, 2])
    >>> exact = target.covariance.diagonal()
    >>> bool((posterior.covariance.diagonal() >= exact).all())
    True
    """

    rank: Count = 20
    map: MAP = field(default_factory=MAP)

    needs: ClassVar[frozenset[Need]] = frozenset()
    by_density: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the leading directions of the curvature there; see :func:`bnnzoo.fit`.

        Raises
        ------
        LaplaceError
            If the prior precision, or the precision in one of the directions, is not positive.
        """
        modes = find_modes(self, density, context)
        curvature = choose_curvature(self.curvature, density, modes[0].theta)

        def around(mode: Mode) -> Gaussian:
            covariance = self._covariance(density, mode, curvature, context.seed)
            return laplace_posterior(density, mode, curvature, covariance)

        mode, found = best_approximation(modes, around)
        warn_of_joint_mode(density)
        warn_if_not_converged(density, mode, found.covariance)
        return found

    def _covariance(self, density: LogDensity, mode: Mode, curvature: Curvature, seed: int) -> LowRankPrecision:
        scale = _prior_scale(density, mode.theta, self.damping)
        full = precision_product(density, mode.theta, curvature)

        def excess(v: Tensor) -> Tensor:
            """Return the product with what the data add to the precision, in units of the prior precision."""
            inner = scale * v
            return scale * (full(inner) + self.damping * inner) - v

        values, vectors = _leading_eigenpairs(excess, mode.theta, self.rank, seed)
        if not bool((values > -1).all()):
            smallest = float(values.min()) + 1
            raise LaplaceError(
                f"The {curvature!s} precision at the mode is not positive definite: relative to the prior's its most "
                f"negative eigenvalue is {smallest:.3g}. Run more optimisation steps (map=MAP(num_steps=...)), use "
                f"curvature='ggn', or add damping.{hierarchical_hint(density)}"
            )
        return LowRankPrecision(scale, vectors, values)


def precision_product(density: LogDensity, theta: Tensor, curvature: Curvature) -> Product:
    """Return ``v[P] -> [P]``, the precision of :class:`bnnzoo.inference.Laplace` at ``theta[P]`` times a vector.

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [P]
    curvature : {"ggn", "hessian", "empirical_fisher"} or MonteCarloFisher
        Of the likelihood; the prior's is always its exact Hessian.
    """
    if curvature == "hessian":
        return _negative_hessian_product(lambda t: density.log_joint(t, *density.data), theta)
    outputs, data = row_function(density, theta, curvature, None)
    prior = _negative_hessian_product(density.log_prior, theta)
    with torch.no_grad():
        splits = rows_are_independent(outputs(theta, *data), outputs, theta, data, density.num_data)
    if not splits or density.num_data <= BLOCK:
        whole = _gauss_newton_product(lambda t: outputs(t, *data), theta)
        return lambda v: prior(v) + whole(v)
    blocks = torch.arange(density.num_data, device=theta.device).split(BLOCK)

    def of_rows(rows: Tensor, v: Tensor) -> Tensor:
        batch = select(data, rows, density.num_data)
        return _gauss_newton_product(lambda t: outputs(t, *batch), theta)(v)

    return lambda v: prior(v) + torch.stack([of_rows(rows, v) for rows in blocks]).sum(0)


def _negative_hessian_product(function: Callable[[Tensor], Tensor], theta: Tensor) -> Product:
    _, transposed = vjp(grad(function), theta)[:2]
    return lambda v: -transposed(v)[0].detach()


def _gauss_newton_product(outputs: Callable[[Tensor], Tensor], theta: Tensor) -> Product:
    """Return the product with J^T J for the Jacobian J of the outputs; the model runs once, not for every product."""
    found, pull = vjp(outputs, theta)[:2]
    _, push = vjp(lambda u: pull(u)[0], torch.zeros_like(found))[:2]  # the transpose of a linear map's transpose
    return lambda v: pull(push(v)[0])[0].detach()


def _prior_scale(density: LogDensity, theta: Tensor, damping: float) -> Tensor:
    """Return the standard deviations ``[P]`` that belong to the diagonal of the prior precision."""
    prior = damping - hessian_diagonal(density.log_prior, theta).detach()
    if not bool((prior > 0).all()):
        site = next(site for site in density.sites if not bool((prior[site.span] > 0).all()))
        raise LaplaceError(
            f"The prior precision of site {site.name!r} at the mode is {float(prior[site.span].min()):.3g}. Give every site a "
            f"proper prior, or add damping={max(-2 * float(prior.min()), 1e-6):.2g}.{hierarchical_hint(density)}"
        )
    return prior.rsqrt()


def _leading_eigenpairs(product: Product, like: Tensor, rank: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues ``[K]`` of largest magnitude of a symmetric matrix and its eigenvectors ``[P, K]``."""
    # imported here: it takes a while, and only this method needs it
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh  # noqa: PLC0415

    size = len(like)
    if rank >= size:
        rows = torch.stack([product(v) for v in torch.eye(size).to(like)])
        values, vectors = torch.linalg.eigh((rows + rows.mT) / 2)
        return values, vectors

    def matvec(v: NDArray[np.floating]) -> NDArray[np.floating]:
        return product(torch.as_tensor(v).to(like).reshape(-1)).cpu().numpy()

    dtype = like.cpu().numpy().dtype
    operator = LinearOperator((size, size), matvec=matvec, dtype=dtype)
    first = np.random.default_rng(seed).standard_normal(size).astype(dtype)
    try:
        values, vectors = eigsh(operator, k=rank, which="LM", v0=first)
    except ArpackNoConvergence as error:
        raise LaplaceError(
            f"Only {len(error.eigenvalues)} of rank={rank} directions of the curvature were found. Write a smaller rank, or fit "
            f"in float64."
        ) from error
    return torch.as_tensor(values).to(like), torch.as_tensor(vectors.copy()).to(like)
