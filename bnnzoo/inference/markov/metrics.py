"""Mass matrices of chains, each estimated from its own draws and gradients of warm-up.

The covariance S of a Gaussian whose scores are nearest to the gradients of a density, in the Fisher divergence, is the geometric
mean of the covariance of draws and of the inverse of that of gradients (Seyboldt, Carlson and Carpenter 2026, arXiv:2603.18845).
On Gaussian posteriors it is exact as soon as there are more draws than parameters.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine import pytree
from bnnzoo.inference.markov.adaptation import shrunk
from bnnzoo.inference.markov.hamiltonian.kernel import LowRankMatrix, Metric

__all__ = [
    "MOST_DRAWS",
    "MOST_PARAMETERS",
    "MassMatrix",
    "drifts",
    "finite_gradients",
    "growth_of_step",
    "has_converged",
    "identity_metric",
    "inverse_mass_of",
    "mass_matrix_for",
    "metric_of",
    "metrics_from",
    "own_variances",
]

type Array = NDArray[np.float64]

type MassMatrix = Literal["auto", "diagonal", "dense", "fisher", "low_rank"]

MOST_PARAMETERS = 256
"""Parameters up to which ``auto`` tries directions; beyond, they cost as much as the gradient of many a model.

With 203, a random walk of log volatility has 6 times the effective draws a gradient, and takes a third of the processor time.
Where directions do not pay, warm-up costs two seconds more for 180 parameters.
"""

MAX_RANK, CUTOFF, REGULAR = 16, 2.0, 1e-5
"""Of a metric of low rank: directions at most, the eigenvalue from which they pay, and what is added to covariances."""

ROUNDING, LARGEST = 1e-10, 1e70
"""Part of the largest variance that all have, and the largest values that count: slopes at a start may be of 1e80 nats."""

MOST_DRAWS = 512
"""The last draws, from which directions are estimated."""

GAUSSIAN = 0.3
"""Fisher divergence a parameter up to which ``auto`` takes directions.

Of 24 posteriors, 22 have at most 0.17; a Gaussian process has 2.0, with a fifth to a half of the effective draws if there are
directions, and a pharmacokinetic model 0.6.
"""

LEAST_INFORMATION = 1e-4
"""Product of the variances of draws and of gradients below which gradients are taken for constant: it is 1 for a Gaussian."""

DRIFT = 30.0
"""Rise of the log density within the draws, in units of its spread, from which a chain is still on its way to the posterior."""

MOST_MOVED, MOST_CHANGED, MOST_GROWN = 0.7, 1.5, 1.2
"""Up to which warm-up has converged: means in standard deviations, variances by a factor, longest and steepest directions, too.

At three windows of 26 posteriors, those of 22 change by less, nearly always; those of a Gaussian process on which chains still
diverge, of a regression on the edge of single precision and of 203 parameters by more.
"""

POWER_STEPS = 10


def mass_matrix_for(mass_matrix: MassMatrix, density: LogDensity) -> MassMatrix:
    """Return the kind that stands for ``auto``: for networks and many parameters the diagonal."""
    if mass_matrix == "auto" and (density.networks or density.num_params > MOST_PARAMETERS):
        return "diagonal"
    return mass_matrix


def identity_metric(theta: Tensor, mass_matrix: MassMatrix) -> Metric:
    """Return unit mass matrices for chains at ``theta[C, P]``."""
    ones = torch.ones_like(theta)
    if mass_matrix == "dense":
        eye = torch.eye(theta.shape[1]).to(theta).expand(len(theta), -1, -1)
        return Metric(eye.clone(), eye.clone())
    if mass_matrix in ("low_rank", "auto"):
        return _to(theta, _low_rank(*map(torch.from_numpy, _without_directions(_array(ones)))))
    return Metric(ones, ones.clone())


@np.errstate(all="ignore")
def metrics_from(theta: Tensor, gradient: Tensor, mass_matrix: MassMatrix) -> tuple[Metric, Tensor]:
    """Return the mass matrices of chains, and for ``auto`` whether what each sees is nearly a Gaussian ``[C]``, else True.

    Parameters
    ----------
    theta, gradient : Tensor
        Draws and gradients of the log density there, ``[C, n, P]`` each.
    mass_matrix : {"auto", "diagonal", "dense", "fisher", "low_rank"}
        Variances or the covariance of draws, shrunk towards 0.001 with the weight of five draws, as in Stan; the diagonal that
        minimises the Fisher divergence; this and few directions; or, for ``auto``, ``low_rank`` where draws and gradients are
        nearly those of a Gaussian, and ``diagonal`` elsewhere.
    """
    draws, gradients = _array(theta), _array(gradient)
    gaussian = np.ones(len(theta), dtype=bool)
    if mass_matrix == "diagonal":
        metric = _diagonal(torch.from_numpy(_variances(draws)))
    elif mass_matrix == "dense":
        metric = _dense(_covariances(draws))
    elif mass_matrix == "fisher":
        metric = _diagonal(torch.from_numpy(_fisher_variances(draws, gradients)))
    else:
        spectrum = _spectrum(draws[:, -MOST_DRAWS:], gradients[:, -MOST_DRAWS:])
        found = _low_rank_of(spectrum)
        if mass_matrix == "auto":
            gaussian = spectrum.divergence <= GAUSSIAN
            plain = _without_directions(np.sqrt(_variances(draws)))
            found = tuple(
                np.where(gaussian.reshape(-1, *[1] * (one.ndim - 1)), one, other)
                for one, other in zip(found, plain, strict=True)
            )
        metric = _low_rank(*map(torch.from_numpy, found))
    return _to(theta, metric), torch.from_numpy(gaussian).to(theta.device)


def finite_gradients(gradient: Tensor) -> Tensor:
    """Return gradients ``[C, n, P]`` of chains, those that rounding has left without a value replaced by the mean of the others.

    A chain may stand where native code cannot compute its gradient, though the graph by which its start was chosen can.
    """
    known = gradient.isfinite().all(2, keepdim=True)
    mean = gradient.where(known, 0.0).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
    return gradient.where(known, mean)


@np.errstate(all="ignore")
def growth_of_step(old: Metric, new: Metric, gradient: Tensor) -> Tensor:
    """Return the factors ``[C]`` by which steps can grow when mass matrices change, from gradients ``[C, n, P]`` at draws.

    A leapfrog step is limited by the direction along which gradients vary most, in units of the metric.
    """
    centred = _centred(_array(gradient))
    steep = [_in_units(each.mass_sqrt, _applied(each.inverse_mass, centred)) for each in (old, new)]
    factor = _ratio_of_steepest(*steep)
    return torch.from_numpy(np.where(np.isfinite(factor) & (factor > 0), factor, 1.0)).to(gradient)


@np.errstate(all="ignore")
def has_converged(old: Metric, new: Metric, theta: Tensor, growth: Tensor, num_new: int) -> Tensor:
    """Return whether chains have nothing to learn from more warm-up ``[C]``: draws are where they were, and as wide.

    Parameters
    ----------
    old, new : Metric
        Under which the last draws were taken, and estimated from them.
    theta : Tensor
        Draws ``[C, n, P]`` of the last two windows.
    growth : Tensor
        Factors ``[C]`` by which steps can grow; see :func:`growth_of_step`.
    num_new : int
        How many draws of a chain are of the last window.
    """
    draws = _array(theta)
    moved = abs(draws[:, -num_new:].mean(1) - draws[:, :-num_new].mean(1)) / draws.std(1, ddof=1)
    changed = abs(np.log(own_variances(new) / own_variances(old)))
    centred = _centred(draws)
    grown = _ratio_of_steepest(*(_in_units(each.mass_sqrt, centred) for each in (old, new)))
    grown = abs(np.log(np.stack([_array(growth), grown], 1)))
    limits = ((moved, MOST_MOVED), (changed, math.log(MOST_CHANGED)), (grown, math.log(MOST_GROWN)))
    within = np.logical_and.reduce([(value <= limit).all(1) for value, limit in limits])
    return torch.from_numpy(within).to(theta.device)


def drifts(log_density: Tensor, num_params: int) -> Tensor:
    """Return whether chains are still on their way to the posterior, from log densities ``[C, n]`` of their draws in order.

    Under the posterior the log density of ``num_params`` parameters varies by about the root of half their number. Draws on
    the way there say little about it: a metric made of them had chains stand still on slopes of a million nats.
    """
    half = log_density.shape[1] // 2
    rise = log_density[:, half:].mean(1) - log_density[:, :half].mean(1)
    return ~(rise <= DRIFT * (1 + (num_params / 2) ** 0.5))


def inverse_mass_of(metric: Metric) -> dict[str, Tensor]:
    """Return what makes up mass matrices: ``inverse_mass`` ``[C, P]`` or ``[C, P, P]``; of a low rank its diagonal, and the rest.

    The rest are ``directions`` ``[C, P, K]`` and their ``eigenvalues`` ``[C, K]``, in units of ``inverse_mass``.
    """
    inverse = metric.inverse_mass
    if isinstance(inverse, LowRankMatrix):
        return {
            "inverse_mass": inverse.left.square(),
            "directions": inverse.directions,
            "eigenvalues": inverse.eigenvalues,
        }
    return {"inverse_mass": inverse}


def metric_of(found: Mapping[str, Tensor]) -> Metric:
    """Return mass matrices from what :func:`inverse_mass_of` returned."""
    inverse_mass = found["inverse_mass"]
    if "directions" in found:
        return _low_rank(inverse_mass.sqrt(), found["directions"], found["eigenvalues"])
    return _diagonal(inverse_mass) if inverse_mass.ndim == 2 else _to(inverse_mass, _dense(_array(inverse_mass)))


def _array(values: Tensor) -> Array:
    """Return a tensor as a NumPy array in double precision.

    Chains have many small matrices, each of which NumPy computes by itself and in little time. The library behind torch rounds
    differently by where in memory a matrix begins: draws of a chain would depend on the number and the state of the others.
    """
    found: Array = values.detach().double().cpu().numpy()
    return found


def _to(like: Tensor, metric: Metric) -> Metric:
    found: Metric = pytree.tree_map(lambda value: value.to(like), metric)
    return found


def own_variances(metric: Metric) -> Array:
    """Return the diagonals ``[C, P]`` of inverse masses."""
    inverse = metric.inverse_mass
    if isinstance(inverse, LowRankMatrix):
        left, directions, eigenvalues, _ = map(_array, inverse)
        along = np.sum(directions**2 * (eigenvalues - 1)[:, None], 2)
        return left**2 * (1 + along)
    return _array(inverse if inverse.ndim == 2 else inverse.diagonal(dim1=1, dim2=2))


def _centred(values: Array) -> Array:
    return values - values.mean(1, keepdims=True)


def _variances(theta: Array) -> Array:
    """Return the shrunk variances ``[C, P]`` of draws."""
    count = theta.shape[1]
    return shrunk(np.sum(_centred(theta) ** 2, 1) / max(count - 1, 1), count)


def _covariances(theta: Array) -> Array:
    """Return the shrunk covariances ``[C, P, P]`` of draws."""
    centred, count = _centred(theta), theta.shape[1]
    return shrunk(centred.mT @ centred / max(count - 1, 1), count, np.eye(theta.shape[2]))


def _fisher_variances(theta: Array, gradient: Array) -> Array:
    """Return the diagonals ``[C, P]`` of least Fisher divergence: 1 where draws do not move, finite where gradients do not."""
    wide, steep = np.mean(_centred(theta) ** 2, 1), np.mean(_centred(gradient) ** 2, 1)
    steep = np.maximum(steep, LEAST_INFORMATION / wide.clip(min=1e-300))
    return np.where(wide > 0, np.sqrt(wide / steep), 1.0).clip(1e-20, 1e20)


class _Spectrum(NamedTuple):
    """Fisher estimates of covariances in units of the diagonal ones, and draws and gradients in these units.

    Attributes
    ----------
    scale : ndarray
        Roots ``[C, P]`` of the diagonal estimates.
    wide, steep : ndarray
        Centred draws and gradients ``[C, n, P]``.
    axes, logs : ndarray
        Eigenvectors ``[C, P, m]`` on what both span, and logarithms ``[C, m]`` of their eigenvalues, ascending; all others are 1.
    """

    scale: Array
    wide: Array
    steep: Array
    axes: Array
    logs: Array

    @property
    def divergence(self) -> Array:
        """Fisher divergence a parameter ``[C]`` from Gaussians with these covariances, of which no direction is left out."""
        root = np.exp(self.logs / 2)[:, None]
        misfit = self.wide @ self.axes / root + self.steep @ self.axes * root
        found: Array = np.sum(misfit**2, (1, 2)) / self.wide[0].size
        return found


def _spectrum(theta: Array, gradient: Array) -> _Spectrum:
    count, size = theta.shape[1:]
    scale = np.sqrt(_fisher_variances(theta, gradient))
    wide, steep = _centred(theta / scale[:, None]), _centred(gradient * scale[:, None])
    pair = (wide, steep)
    if 2 * count < size:
        basis = np.linalg.qr(np.concatenate(pair, 1).mT).Q
        pair = (wide @ basis, steep @ basis)
    values, axes = np.linalg.eigh(_geometric_mean(*map(_regular, pair)))
    axes = basis @ axes if 2 * count < size else axes
    return _Spectrum(scale, wide, steep, axes, np.log(values.clip(1e-12, 1e12)))


def _low_rank_of(spectrum: _Spectrum) -> tuple[Array, ...]:
    """Return the parts of inverse masses ``S (I + U (L - 1) U^T) S``: a diagonal S, few orthonormal directions U, and L.

    At most ``MAX_RANK`` eigenvectors are kept: those without which the eigenvalues of the others lie closest together, since
    the largest of these limits how short trajectories are, and the smallest how long steps are. S is in the middle of them.
    Directions that differ from it by a factor up to ``CUTOFF`` are left out; columns that are missing are zero, so that shapes
    are the same for every chain.
    """
    (size, found), logs = spectrum.axes.shape[1:], spectrum.logs
    rank, scale = min(size, MAX_RANK), spectrum.scale
    if found > rank:
        low, high = logs[:, : rank + 1], logs[:, found - rank - 1 :]  # without the first k and the last rank - k
        if found < size:
            low, high = low.clip(max=0), high.clip(min=0)
        first = (high - low).argmin(1)[:, None]
        centre = np.take_along_axis(low + high, first, 1) / 2
        places = np.arange(found)
        logs = np.where((places < first) | (places >= first + found - rank), logs - centre, 0)
        scale = scale * np.exp(centre / 2)
    logs = np.where(abs(logs) > math.log(CUTOFF), logs, 0)
    kept = np.argsort(-abs(logs), 1, kind="stable")[:, :rank]
    logs = np.take_along_axis(logs, kept, 1)
    directions, eigenvalues = np.zeros((len(logs), size, rank)), np.ones((len(logs), rank))
    directions[:, :, : kept.shape[1]] = np.take_along_axis(spectrum.axes, kept[:, None], 2) * (logs != 0)[:, None]
    eigenvalues[:, : kept.shape[1]] = np.exp(logs)
    return scale, directions, eigenvalues


def _regular(values: Array) -> Array:
    """Return the covariances of centred ``values[C, n, d]``, a little of the identity added: more where rounding needs it."""
    values = values.clip(-LARGEST, LARGEST)
    found = values.mT @ values / values.shape[1]
    added = np.maximum(REGULAR, ROUNDING * np.diagonal(found, axis1=1, axis2=2).max(1))
    return found + added[:, None, None] * np.eye(values.shape[2])


def _geometric_mean(first: Array, second: Array) -> Array:
    """Return matrices G with ``G second G = first``, for positive definite ones ``[C, d, d]``."""
    tril = np.linalg.cholesky(second)
    values, vectors = np.linalg.eigh(tril.mT @ first @ tril)
    outer = np.linalg.inv(tril).mT @ vectors
    found: Array = outer * np.sqrt(values.clip(min=0))[:, None] @ outer.mT
    return found


def _applied(matrix: Tensor | LowRankMatrix, rows: Array) -> Array:
    """Return matrices of chains times ``rows[C, n, P]``."""
    if isinstance(matrix, LowRankMatrix):
        left, directions, eigenvalues, right = map(_array, matrix)
        scaled = rows * right[:, None]
        return left[:, None] * (scaled + scaled @ directions * (eigenvalues - 1)[:, None] @ directions.mT)
    found = _array(matrix)
    return rows * found[:, None] if found.ndim == 2 else rows @ found.mT


def _in_units(root: Tensor | LowRankMatrix, rows: Array) -> Array:
    """Return ``A^T`` times rows, for ``A A^T`` the mass matrix: differences of draws in units in which that is the identity."""
    if isinstance(root, LowRankMatrix):
        return _applied(root._replace(left=root.right, right=root.left), rows)
    return _applied(root if root.ndim == 2 else root.mT, rows)


def _ratio_of_steepest(first: Array, second: Array) -> Array:
    """Return roots of ratios ``[C]`` of the largest eigenvalues of ``rows^T rows``, of rows ``[C, n, P]`` each.

    Power iteration starts at the longest row.
    """
    rows = np.concatenate([first, second])
    longest = np.vecdot(rows, rows).argmax(1)
    direction = rows[np.arange(len(rows)), longest]
    for _ in range(POWER_STEPS):
        length = np.sqrt(np.vecdot(direction, direction)).clip(min=1e-300)
        direction = (rows.mT @ (rows @ (direction / length[:, None])[:, :, None]))[:, :, 0]
    squared = np.vecdot(direction, direction)
    found: Array = (squared[: len(first)] / squared[len(first) :]) ** 0.25
    return found


def _low_rank(scale: Tensor, directions: Tensor, eigenvalues: Tensor) -> Metric:
    inverse_mass = LowRankMatrix(scale, directions, eigenvalues, scale)
    return Metric(inverse_mass, LowRankMatrix(1 / scale, directions, eigenvalues.rsqrt(), torch.ones_like(scale)))


def _without_directions(scale: Array) -> tuple[Array, ...]:
    """Return diagonal inverse masses, of roots ``[C, P]``, in the parts of those of low rank; their directions are zero."""
    rank = min(scale.shape[1], MAX_RANK)
    return scale, np.zeros((*scale.shape, rank)), np.ones((len(scale), rank))


def _diagonal(variance: Tensor) -> Metric:
    return Metric(variance, variance.rsqrt())


def _dense(covariance: Array) -> Metric:
    roots = np.linalg.solve(np.linalg.cholesky(covariance), np.eye(covariance.shape[1])).mT
    return Metric(torch.from_numpy(covariance), torch.from_numpy(np.ascontiguousarray(roots)))
