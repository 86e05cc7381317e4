"""Gaussians along the paths of L-BFGS from starts to the mode, for many starts at once (Pathfinder)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.inference.optimise.lbfgs import Evaluate, lbfgs

__all__ = ["Normals", "Paths", "normals_at", "paths_from"]

LEAST_GAIN = 1e-6
"""Nats of log density that one of three steps must promise for a path to go on."""

LEAST_CURVATURE = 1e-12
"""Smallest cosine between a step and the change of the gradient, times their ratio of lengths, at which curvature is learnt."""

LEAST_EIGENVALUE = 1e-10
"""Of the covariance, in units of its diagonal part, below which rounding decides."""


class Normals(NamedTuple):
    """A Gaussian for each path, with covariance ``S (I + V diag(lambda) V^T) S`` and ``S = diag(scale)``.

    Attributes
    ----------
    loc, scale : Tensor [C, P]
    vectors : Tensor [C, P, K]
        V, of orthonormal columns.
    values : Tensor [C, K]
        Each greater than -1.
    """

    loc: Tensor
    scale: Tensor
    vectors: Tensor
    values: Tensor

    def draws(self, noise: Tensor) -> Tensor:
        """Return ``theta[C, S, P]`` from standard normal ``noise[C, S, P]``."""
        along = (noise @ self.vectors) * ((1 + self.values).sqrt() - 1)[:, None]
        return self.loc[:, None] + self.scale[:, None] * (noise + along @ self.vectors.mT)

    def log_density(self, noise: Tensor) -> Tensor:
        """Return the log density ``[C, S]`` of the draws that ``noise[C, S, P]`` makes."""
        half_logdet = self.scale.log().sum(1) + 0.5 * self.values.log1p().sum(1)
        constant = 0.5 * noise.shape[-1] * math.log(2 * math.pi)
        return -0.5 * noise.square().sum(-1) - half_logdet[:, None] - constant

    def where(self, rows: Tensor, other: "Normals") -> "Normals":
        """Return these Gaussians for the marked rows ``[C]``, the other ones elsewhere."""
        pairs = zip(self, other, strict=True)
        return Normals(*(torch.where(rows.reshape(-1, *(1 for _ in a.shape[1:])), a, b) for a, b in pairs))


class Paths(NamedTuple):
    """The best Gaussian of each path, its bound, and the work it took.

    Attributes
    ----------
    best : Normals
        The Gaussian with the highest bound.
    elbo : Tensor [C]
        Its bound; minus infinity on a path that has none.
    trace : Tensor [C, T]
        The bound at every step, NaN where the path stood still or the bound could not be computed.
    num_gradients, num_values : int
        Evaluations of the density with and without its gradient, all paths together.
    num_rejected : int
        Points at which the density is not finite.
    """

    best: Normals
    elbo: Tensor
    trace: Tensor
    num_gradients: int
    num_values: int
    num_rejected: int


def paths_from(
    evaluate: Evaluate,
    log_density: Callable[[Tensor], Tensor],
    start: Tensor,
    noise: Tensor,
    *,
    max_steps: int,
    history: int,
) -> Paths:
    """Return the best of the Gaussians at the steps of L-BFGS from every row of ``start[C, P]``.

    Parameters
    ----------
    evaluate : callable
        ``theta[C, P] -> (value[C], gradient[C, P])``, the log density to maximise.
    log_density : callable
        ``theta[S, P] -> value[S]``, by which bounds are estimated.
    start : Tensor [C, P]
    noise : Tensor [C, S, P]
        Standard normal, from which each Gaussian on a path is drawn: bounds differ by the Gaussians alone.
    max_steps : int
        Steps after which a path ends; it ends earlier where the next one promises less than ``LEAST_GAIN``.
    history : int
        Pairs of differences from which curvature is estimated.

    References
    ----------
    Zhang, Carpenter, Gelman and Vehtari (2022), Pathfinder: parallel quasi-Newton variational inference, JMLR 23.
    """
    observed = _Observed(log_density, noise.double(), history, start.dtype)
    found = lbfgs(evaluate, start, max_steps, 0.0, history, LEAST_GAIN, observed)
    assert observed.best is not None
    trace = torch.stack(observed.bounds or [torch.full_like(observed.elbo, math.nan)], 1)
    return Paths(
        observed.best,
        observed.elbo,
        trace,
        found.num_evaluations * len(start),
        observed.num_values,
        found.num_rejected,
    )


class _Observed:
    """Follows L-BFGS, learns curvature from its steps, and keeps the best Gaussian of each path."""

    def __init__(
        self, log_density: Callable[[Tensor], Tensor], noise: Tensor, history: int, dtype: torch.dtype
    ) -> None:
        self._log_density, self._noise, self._history, self._dtype = log_density, noise, history, dtype
        self._last: tuple[Tensor, Tensor] | None = None
        self.best: Normals | None = None
        self.elbo = noise.new_full((len(noise),), -math.inf)
        self.bounds: list[Tensor] = []
        self.num_values = 0

    def __call__(self, theta: Tensor, gradient: Tensor, moved: Tensor) -> Tensor | None:
        """Learn from a step of all paths to ``theta[C, P]``, try the Gaussians there, and return the ways to their means."""
        theta, gradient = theta.double(), gradient.double()
        if self._last is None:
            self._begin(theta, gradient)
            return None
        step, change = theta - self._last[0], self._last[1] - gradient
        self._last = (theta, gradient)
        product, square = (step * change).sum(1), change.square().sum(1)
        curved = (product > LEAST_CURVATURE * square) & (square > 0) & product.isfinite() & square.isfinite()
        learnt = moved & curved  # where the gradient changed along the step as it does below a mode
        self._remember(step, change, learnt)
        normals = normals_at(theta, gradient, self._variances, self._steps, self._changes)
        bound = self._bound(normals, moved)
        better = bound > self.elbo
        self.elbo = torch.where(better, bound, self.elbo)
        self.best = normals.where(better, self.best) if self.best is not None else normals
        self.bounds.append(torch.where(moved & bound.isfinite(), bound, math.nan))
        return (normals.loc - theta).to(self._dtype)

    def _begin(self, theta: Tensor, gradient: Tensor) -> None:
        self._last = (theta, gradient)
        self._variances, self._is_new = torch.ones_like(theta), torch.ones(len(theta), dtype=torch.bool)
        self._is_new = self._is_new.to(theta.device)
        self._steps = theta.new_zeros(*theta.shape, self._history)
        self._changes = self._steps.clone()
        self.best = normals_at(theta, gradient, self._variances, self._steps, self._changes)

    def _remember(self, step: Tensor, change: Tensor, learnt: Tensor) -> None:
        """Put pairs in place of the oldest ones, and update the diagonal, on the paths that learn ``[C]``."""
        scale = (step * change).sum(1, keepdim=True) / change.square().sum(1, keepdim=True)
        before = torch.where(self._is_new[:, None], scale.expand_as(step), self._variances)
        self._variances = torch.where(learnt[:, None], _next_variances(before, step, change), self._variances)
        self._is_new = self._is_new & ~learnt
        rows = learnt[:, None, None]
        self._steps = torch.where(rows, torch.cat([self._steps[..., 1:], step[..., None]], -1), self._steps)
        self._changes = torch.where(rows, torch.cat([self._changes[..., 1:], change[..., None]], -1), self._changes)

    def _bound(self, normals: Normals, moved: Tensor) -> Tensor:
        """Return estimates of the evidence lower bound ``[C]``, minus infinity for paths that did not move or have none."""
        known = moved & torch.stack([each.flatten(1).isfinite().all(1) for each in normals]).all(0)
        bound = torch.full_like(self.elbo, -math.inf)
        if not bool(known.any()):
            return bound
        here, noise = Normals(*(each[known] for each in normals)), self._noise[known]
        theta = here.draws(noise)
        value = self._log_density(theta.flatten(0, 1).to(self._dtype)).double().reshape(noise.shape[:2])
        self.num_values += value.numel()
        bound[known] = (value - here.log_density(noise)).mean(1).nan_to_num(-math.inf, posinf=-math.inf)
        return bound


def _next_variances(variances: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """Return the diagonal ``[C, P]`` of the inverse Hessian after a step, by the update of Gilbert and Lemarechal (1989)."""
    along, length = (step * change).sum(1, keepdim=True), (change.square() * variances).sum(1, keepdim=True)
    own = (step.square() / variances).sum(1, keepdim=True)
    precision = length / (along * variances) + change.square() / along
    return 1 / (precision - length * step.square() / (along * own * variances.square()))


def normals_at(theta: Tensor, gradient: Tensor, variances: Tensor, steps: Tensor, changes: Tensor) -> Normals:
    """Return the Gaussians whose covariances are the BFGS estimates of the inverse Hessian, one Newton step from ``theta[C, P]``.

    Parameters
    ----------
    theta, gradient : Tensor [C, P]
    variances : Tensor [C, P]
        Diagonal from which BFGS updates start.
    steps, changes : Tensor [C, P, J]
        Differences of positions and of minus gradients, the oldest first, all zero where there are none.

    Returns
    -------
    Normals
        Of rank ``min(P, 2 J)``.
    """
    scale = variances.sqrt()
    gamma = _compact(variances, steps, changes)
    white = torch.cat([scale[..., None] * changes, steps / scale[..., None]], -1)
    q, r = torch.linalg.qr(white)
    inner = r @ gamma @ r.mT
    inner = torch.where(inner.isfinite(), inner, 0.0)
    values, rotation = torch.linalg.eigh(0.5 * (inner + inner.mT))
    values, vectors = values.clamp(min=LEAST_EIGENVALUE - 1), q @ rotation
    slope = scale * gradient
    along = (slope[:, None] @ vectors) * values[:, None]
    return Normals(theta + scale * (slope + (along @ vectors.mT)[:, 0]), scale, vectors, values)


def _compact(variances: Tensor, steps: Tensor, changes: Tensor) -> Tensor:
    """Return the inner matrix ``[C, 2 J, 2 J]`` of the compact form of BFGS, H = A + B gamma B^T, B = (A Y, S), A diagonal.

    References
    ----------
    Byrd, Nocedal and Schnabel (1994), Representations of quasi-Newton matrices and their use in limited memory methods,
    Mathematical Programming 63.
    """
    products = steps.mT @ changes
    along = products.diagonal(dim1=-2, dim2=-1)
    upper = products.triu() + torch.diag_embed((along == 0).to(products))  # pairs that are not there
    eye = torch.eye(steps.shape[-1]).to(steps).expand_as(upper)
    inverse = torch.linalg.solve_triangular(upper, eye, upper=True)
    middle = torch.diag_embed(along) + changes.mT @ (variances[..., None] * changes)
    corner = inverse.mT @ middle @ inverse
    return torch.cat([torch.cat([torch.zeros_like(eye), -inverse], -1), torch.cat([-inverse.mT, corner], -1)], -2)
