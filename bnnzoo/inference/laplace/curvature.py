"""Curvature of a log density at a mode: the exact Hessian, the generalised Gauss-Newton matrix and the Fishers."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad_and_value

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.fit_warnings import UnreadableLikelihoodWarning
from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.likelihood.survival import is_censored
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.fisher_scores import (
    drawn_observations,
    log_likelihood_at_draws,
    scaled_log_likelihood,
    score_root,
)
from bnnzoo.core.model.hessian import hessian_of, in_double
from bnnzoo.core.model.outputs import jacobian_in_blocks, linearized, whitened_node, whitened_outputs
from bnnzoo.core.model.replay import Node
from bnnzoo.core.parameters.hierarchy import has_weights
from bnnzoo.core.parameters.restricted import restricted
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.settings import Count, NonNegativeCount, check_settings
from bnnzoo.core.types import Data
from bnnzoo.engine.choose import MIN_BLOCKS_TO_TRACE
from bnnzoo.engine.lowered import Lowered
from bnnzoo.inference.laplace.hessian_products import diagonal_if_diagonal, negative_hessian

__all__ = [
    "Curvature",
    "MonteCarloFisher",
    "RowCurvature",
    "choose_curvature",
    "has_gauss_newton",
    "precision",
    "root_of_node",
    "row_function",
    "sum_over_rows",
]


@dataclass(frozen=True)
class MonteCarloFisher:
    r"""The Fisher information estimated from observations drawn from the model.

    .. math:: \frac{1}{M} \sum_n \sum_m g_{nm} g_{nm}^T, \qquad g_{nm} = \nabla_\theta \log p(y_{nm} \mid x_n, \theta^*),
        \quad y_{nm} \sim p(y \mid x_n, \theta^*)

    Parameters
    ----------
    num_draws : int
        Number M of draws of every observation.
    seed : int
        Seed of the draws.

    References
    ----------
    Kunstner, Balles and Hennig (2019), Limitations of the empirical Fisher approximation for natural gradient descent,
    NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(curvature=MonteCarloFisher(num_draws=500)), *target.data)
    >>> bool(torch.allclose(posterior.covariance.dense(), target.covariance, rtol=0.1, atol=1e-4))
    True
    """

    num_draws: Count = 100
    seed: NonNegativeCount = 0

    def __post_init__(self) -> None:
        check_settings(self)

    def __str__(self) -> str:
        return "monte_carlo_fisher"


type RowCurvature = Literal["ggn", "empirical_fisher"] | MonteCarloFisher
"""Curvatures that are sums over rows of outer products, hence never indefinite."""

type Curvature = Literal["ggn", "hessian", "empirical_fisher"] | MonteCarloFisher

MAX_ELEMENTS = 2**23  # of a block of Jacobians


def choose_curvature(
    wanted: Curvature | None, density: LogDensity, theta: Tensor, *, is_exact: bool = False
) -> Curvature:
    """Return the curvature to use at ``theta[P]``: the wanted one; else GGN, or the exact Hessian where GGN does not exist.

    With ``is_exact``, for structures that can hold it, the Hessian comes first for models without matrices of weights.

    Raises
    ------
    ModelError
        If the wanted curvature does not exist for this likelihood.

    Warns
    -----
    UnreadableLikelihoodWarning
        If the exact Hessian replaces GGN.
    """
    if isinstance(wanted, MonteCarloFisher) and density.factors:
        raise ModelError(
            f"MonteCarloFisher draws observations, and the likelihood has the pyro.factor site {density.factors[0]!r}, "
            f"which cannot be drawn from. Write curvature='hessian'."
        )
    if isinstance(wanted, MonteCarloFisher):
        for name, node in density.observed_nodes(theta, *density.data).items():
            if name in density.observed and is_censored(node["fn"]):
                raise ModelError(
                    f"MonteCarloFisher draws outcomes, and site {name!r} is censored: at what time the others would have been "
                    f"is not known. Write curvature='ggn', which needs no draws."
                )
    if wanted in ("hessian", "empirical_fisher") or isinstance(wanted, MonteCarloFisher):
        return wanted
    if wanted is None and is_exact and not has_weights(density):
        return "hessian"
    try:
        _refuse_unreadable(density, theta)
    except UnreadableLikelihood as error:
        if wanted == "ggn":
            raise ModelError(
                f"{error} Write curvature='hessian' or curvature=MonteCarloFisher(), which need no parameters."
            ) from None
        warnings.warn(
            f"The exact Hessian replaces the Gauss-Newton matrix: {error} It may be indefinite, and predictions come from the "
            f"model itself and not from the model linearised at the mode: where the model is far from linear within the "
            f"posterior's width, they can be much worse than the mode's. Compare them with those of MAP() or NUTS(), or write "
            f"curvature='hessian' to accept this.",
            UnreadableLikelihoodWarning,
            stacklevel=2,
        )
        return "hessian"
    return "ggn" if density.observed else "hessian"


def has_gauss_newton(density: LogDensity, theta: Tensor) -> bool:
    """Tell whether the likelihood has a Gauss-Newton matrix at ``theta[P]``."""
    try:
        _refuse_unreadable(density, theta)
    except UnreadableLikelihood:
        return False
    return bool(density.observed)


def _refuse_unreadable(density: LogDensity, theta: Tensor) -> None:
    """Refuse a likelihood that cannot be read, or whose readout misses something that depends on theta.

    A model linearised at theta has the same likelihood and gradient there, if its readout is complete.
    """
    _ = density.active
    if not density.observed or _computed_roots(density, theta) is None:
        return
    line = linearized(density, theta)
    exact, found = (
        grad_and_value(lambda t, d=d: d.log_likelihood(t, *d.data).sum())(theta.detach()) for d in (density, line)
    )
    if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(exact, found, strict=True)):
        raise UnreadableLikelihood(
            f"The likelihood of site {density.observed[0]!r} cannot be read: something besides its parameters depends on "
            f"latent sites."
        )


def precision(density: LogDensity, theta: Tensor, curvature: Curvature, index: Tensor | None = None) -> Tensor:
    """Return minus the curvature ``[R, R]`` of the log joint density at ``theta[P]``: a Gaussian's precision.

    Added up in double precision: rounding errors of the likelihood's largest eigenvalues, which small noise makes huge, must not
    hide the prior's, without which the sum is singular.

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [P]
    curvature : {"ggn", "hessian", "empirical_fisher"} or MonteCarloFisher
        Of the likelihood; the prior's is always its exact Hessian.
    index : Tensor [R], optional
        Entries of theta. Default: all.
    """
    if curvature == "hessian":
        return _exact(density, theta, index)
    likelihood = sum_over_rows(density, theta, curvature, lambda root: root.double().mT @ root.double(), index)
    diagonal = diagonal_if_diagonal(density.log_prior, theta)  # that of independent priors
    if diagonal is None:
        return negative_hessian(density.log_prior, theta, (), index) + likelihood
    return torch.diag(-(diagonal if index is None else diagonal[index])) + likelihood


def _exact(density: LogDensity, theta: Tensor, index: Tensor | None) -> Tensor:
    """Return minus the exact Hessian ``[R, R]``, in double precision where the model runs in it."""
    if theta.dtype == torch.float64 or type(density) is not LogDensity:
        return _negative_hessian(density, theta, index)
    try:
        return _negative_hessian(in_double(density), theta.double(), index)
    except RuntimeError:  # the model holds tensors of its own in single precision
        return _negative_hessian(density, theta, index).double()


def _negative_hessian(density: LogDensity, theta: Tensor, index: Tensor | None) -> Tensor:
    if density.is_one_of_many and index is None:
        hessian = hessian_of(density, theta)
        return -(hessian + hessian.mT) / 2
    return negative_hessian(density.log_joint, theta, density.data, index)


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

    evaluate = Lowered(of_rows) if len(blocks) >= MIN_BLOCKS_TO_TRACE else of_rows
    total = torch.zeros(())
    with torch.no_grad():
        for rows in blocks:
            total = total + evaluate(theta, *select(data, rows, density.num_data))
    return total


def row_function(
    density: LogDensity, theta: Tensor, curvature: Curvature, index: Tensor | None
) -> tuple[Callable[..., Tensor], Data]:
    """Return ``(theta, *batch) -> [B, K]`` whose Jacobian is a root of the likelihood's curvature, and its data."""
    some = density if index is None else restricted(density, theta, index)
    if curvature == "empirical_fisher":
        return partial(scaled_log_likelihood, some), density.data
    if isinstance(curvature, MonteCarloFisher):
        draws = drawn_observations(density, theta, curvature.num_draws, curvature.seed)
        size = len(density.data)

        def at_draws(theta: Tensor, *batch: Any) -> Tensor:
            return log_likelihood_at_draws(some, batch[size:], theta, *batch[:size])

        return at_draws, density.data + draws
    roots = _computed_roots(density, theta)
    if roots is None:
        return partial(whitened_outputs, some, density.active), density.data
    names, size = [name for name, blocks in roots.items() for _ in blocks], len(density.data)

    def at_roots(theta: Tensor, *batch: Any) -> Tensor:
        given = {name: tuple(r for n, r in zip(names, batch[size:], strict=True) if n == name) for name in roots}
        return whitened_outputs(some, density.active, theta, *batch[:size], roots=given)

    return at_roots, density.data + tuple(root for blocks in roots.values() for root in blocks)


def _computed_roots(density: LogDensity, theta: Tensor) -> dict[str, tuple[Tensor, ...]] | None:
    """Return the roots of each site's Fisher information at theta, where one has no closed form; None if all have."""
    with torch.no_grad():
        nodes = density.nodes(theta, *density.data)
        found = {name: read(nodes[name]["fn"]) for name in density.observed}
        if all(readout.closed_form for readout in found.values()):
            return None
        return {name: readout.roots for name, readout in found.items()}


def root_of_node(density: LogDensity, node: Node, curvature: Curvature) -> Tensor:
    """Return ``[B, K]`` whose gradients with respect to what the site depends on are a root of the likelihood's curvature."""
    if curvature == "empirical_fisher":
        return score_root(node)
    if not isinstance(curvature, MonteCarloFisher):
        return whitened_node(node)
    with isolated(curvature.seed, density.device), torch.no_grad():
        draws = node["fn"].sample((curvature.num_draws,))
    return score_root(node, draws.movedim(0, 1))
