"""Curvature of a log density at a mode: the exact Hessian, the generalised Gauss-Newton matrix and the Fishers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from bnnzoo.core.density import LogDensity
from bnnzoo.core.minibatch import select
from bnnzoo.core.outputs import jacobian_in_blocks, whitened_node, whitened_outputs
from bnnzoo.core.readout import UnreadableLikelihood
from bnnzoo.core.replay import Node, isolated
from bnnzoo.core.restricted import restricted
from bnnzoo.core.scores import drawn_observations, log_likelihood_at_draws, scaled_log_likelihood, score_root
from bnnzoo.core.sites import ModelError
from bnnzoo.core.types import Data
from bnnzoo.lowering.lowered import Lowered

__all__ = [
    "Curvature",
    "MonteCarloFisher",
    "choose_curvature",
    "hessian_diagonal",
    "negative_hessian",
    "precision",
    "root_of_node",
    "row_function",
    "scale_tril_of",
    "sum_over_rows",
]


@dataclass(frozen=True)
class MonteCarloFisher:
    r"""The Fisher information by drawn observations, for likelihoods of which no closed form is known.

    .. math:: \frac{1}{M} \sum_n \sum_m g_{nm} g_{nm}^T, \qquad g_{nm} = \nabla_\theta \log p(y_{nm} \mid x_n, \theta^*),
        \quad y_{nm} \sim p(y \mid x_n, \theta^*)

    Parameters
    ----------
    num_draws : int
        M draws of every observation.
    seed : int
        Of the draws.

    References
    ----------
    Kunstner, Balles and Hennig (2019), Limitations of the empirical Fisher approximation for natural gradient descent,
    NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(curvature=MonteCarloFisher(num_draws=2000)), *target.data)
    >>> bool(torch.allclose(posterior.covariance.dense(), target.covariance, rtol=0.1, atol=1e-4))
    True
    """

    num_draws: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_draws < 1:
            raise ValueError(f"MonteCarloFisher(num_draws={self.num_draws}): write 1 or more.")

    def __str__(self) -> str:
        return "monte_carlo_fisher"


type Curvature = Literal["ggn", "hessian", "empirical_fisher"] | MonteCarloFisher

BLOCK = 64  # Hessian rows at a time
MIN_BLOCKS_TO_LOWER = 64  # tracing takes about as long as so many evaluations
MAX_ELEMENTS = 2**23  # of a block of Jacobians or of Hessian rows


def choose_curvature(wanted: Curvature | None, density: LogDensity) -> Curvature:
    """Return the curvature to use: the wanted one, else GGN where the likelihood can be read and the Hessian elsewhere.

    Raises
    ------
    ModelError
        If GGN is wanted and the likelihood cannot be read.
    """
    if isinstance(wanted, MonteCarloFisher) and density.factors:
        raise ModelError(
            f"MonteCarloFisher draws observations, and the likelihood has the pyro.factor site {density.factors[0]!r}, "
            f"which cannot be drawn from. Write curvature='hessian'."
        )
    if wanted in ("hessian", "empirical_fisher") or isinstance(wanted, MonteCarloFisher):
        return wanted
    try:
        _ = density.active
    except UnreadableLikelihood as error:
        if wanted == "ggn":
            raise ModelError(
                f"{error} Write curvature='hessian' or curvature=MonteCarloFisher(), which need no family."
            ) from None
        return "hessian"
    return "ggn" if density.observed else "hessian"


def precision(density: LogDensity, theta: Tensor, curvature: Curvature, index: Tensor | None = None) -> Tensor:
    """Return minus the curvature ``[R, R]`` of the log joint density at ``theta[P]``: a Gaussian's precision.

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [P]
    curvature : {"ggn", "hessian", "empirical_fisher"} or MonteCarloFisher
        Of the likelihood; the prior's is always its exact Hessian.
    index : Tensor [R], optional
        Entries of theta; all unless given.
    """
    if curvature == "hessian":
        return negative_hessian(density.log_joint, theta, density.data, index)
    return _prior_precision(density, theta, index) + sum_over_rows(
        density, theta, curvature, lambda root: root.mT @ root, index
    )


def _prior_precision(density: LogDensity, theta: Tensor, index: Tensor | None) -> Tensor:
    """Return minus the Hessian ``[R, R]`` of the log prior, most often a diagonal matrix."""
    diagonal = diagonal_if_diagonal(density.log_prior, theta)
    if diagonal is None:
        return negative_hessian(density.log_prior, theta, (), index)
    return torch.diag(-(diagonal if index is None else diagonal[index]))


def sum_over_rows(
    density: LogDensity,
    theta: Tensor,
    curvature: Curvature,
    reduce: Callable[[Tensor], Tensor],
    index: Tensor | None = None,
) -> Tensor:
    r"""Return the sum over rows of ``reduce(root)``, where the likelihood's curvature is root^T root, ``[b K, R]``.

    Parameters
    ----------
    density, theta, index
        As for :func:`precision`.
    curvature : {"ggn", "empirical_fisher"} or MonteCarloFisher
        For GGN the rows of the root are :math:`R_n^T J_n`, for the empirical Fisher the gradients of
        :math:`\log p(y_n \mid \theta)`.
    reduce : callable
        Such as ``root.mT @ root``, or ``(root**2).sum(0)`` for the diagonal.
    """
    outputs, data = row_function(density, theta, curvature, index)
    theta = theta if index is None else theta[index]
    with torch.no_grad():
        whole = outputs(theta, *data)
    jacobian, blocks = jacobian_in_blocks(whole, outputs, theta, data, density.num_data, MAX_ELEMENTS)

    def of_rows(theta: Tensor, *batch: Any) -> Tensor:
        return reduce(jacobian(theta, *batch).reshape(-1, len(theta)))

    evaluate = Lowered(of_rows) if len(blocks) >= MIN_BLOCKS_TO_LOWER else of_rows
    total = torch.zeros(())
    with torch.no_grad():
        for rows in blocks:
            total = total + evaluate(theta, *select(data, rows, density.num_data))
    return total


def row_function(
    density: LogDensity, theta: Tensor, curvature: Curvature, index: Tensor | None
) -> tuple[Callable[..., Tensor], Data]:
    """Return ``(theta, *batch) -> [B, K]`` whose Jacobian is a root of the likelihood's curvature, and what it takes."""
    some = density if index is None else restricted(density, theta, index)
    if curvature == "empirical_fisher":
        return partial(scaled_log_likelihood, some), density.data
    if isinstance(curvature, MonteCarloFisher):
        draws = drawn_observations(density, theta, curvature.num_draws, curvature.seed)
        size = len(density.data)

        def at_draws(theta: Tensor, *batch: Any) -> Tensor:
            return log_likelihood_at_draws(some, batch[size:], theta, *batch[:size])

        return at_draws, density.data + draws
    return partial(whitened_outputs, some, density.active), density.data


def root_of_node(density: LogDensity, node: Node, curvature: Curvature) -> Tensor:
    """Return ``[B, K]`` whose gradient about what an observed site depends on is a root of the likelihood's curvature."""
    if curvature == "empirical_fisher":
        return score_root(node)
    if not isinstance(curvature, MonteCarloFisher):
        return whitened_node(node)
    with isolated(curvature.seed, density.device), torch.no_grad():
        draws = node["fn"].sample((curvature.num_draws,))
    return score_root(node, draws.movedim(0, 1))


def negative_hessian(function: Callable[..., Tensor], theta: Tensor, data: Data, index: Tensor | None = None) -> Tensor:
    """Return minus the Hessian ``[R, R]`` of ``(theta[P], *data) -> []`` at theta, for some entries or all."""
    index = torch.arange(len(theta), device=theta.device) if index is None else index

    def of_part(part: Tensor) -> Tensor:
        return function(theta.index_copy(0, index, part), *data)

    _, transposed = vjp(grad(of_part), theta[index])[:2]
    directions = torch.eye(len(index), dtype=theta.dtype, device=theta.device)
    size = max(1, MAX_ELEMENTS // max(1, 8 * len(theta)))
    hessian = -torch.cat([_products(transposed, block).detach() for block in directions.split(size)])
    return (hessian + hessian.mT) / 2


def _products(transposed: Callable[[Tensor], tuple[Tensor, ...]], directions: Tensor) -> Tensor:
    """Return a linear map applied to every row of ``directions[B, R]``."""
    try:
        return vmap(lambda v: transposed(v)[0])(directions)
    except RuntimeError:  # some operations of the user's model may be unknown to vmap
        return torch.stack([transposed(v)[0] for v in directions])


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


def diagonal_if_diagonal(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor | None:
    """Return the diagonal ``[P]`` of a Hessian that has nothing else, as that of independent priors; None for others.

    One product with it is enough; a second one, with random signs, tells whether it is diagonal.
    """
    signs = 2.0 * torch.randint(2, theta.shape, generator=torch.Generator().manual_seed(0)).to(theta) - 1
    theta = theta.detach().requires_grad_()
    with torch.enable_grad():
        gradient = _derivative(function(theta), theta, torch.ones(()).to(theta), create_graph=True)
        diagonal, signed = (_derivative(gradient, theta, v) for v in (torch.ones_like(theta), signs))
    return diagonal if torch.allclose(signed, diagonal * signs) else None


def _derivative(value: Tensor, theta: Tensor, weights: Tensor, *, create_graph: bool = False) -> Tensor:
    """Return the transposed Jacobian of ``value`` about theta times ``weights``; zero where it does not depend on theta."""
    if not value.requires_grad:
        return torch.zeros_like(theta)
    return torch.autograd.grad(
        value, theta, weights, retain_graph=True, create_graph=create_graph, materialize_grads=True
    )[0]


def hessian_diagonal(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return the diagonal ``[P]`` of the Hessian of a function of ``theta[P]``."""
    diagonal = diagonal_if_diagonal(function, theta)
    if diagonal is not None:
        return diagonal
    _, product = vjp(grad(function), theta)[:2]
    entries = []
    for rows in torch.arange(len(theta), device=theta.device).split(BLOCK):
        directions = torch.nn.functional.one_hot(rows, len(theta)).to(theta)
        entries.append((_products(product, directions) * directions).sum(1))
    return torch.cat(entries)
