"""Mass matrices of chains, each estimated from its own draws and gradients of warm-up.

The covariance S of a Gaussian whose scores are nearest to the gradients of a density, in the Fisher divergence, is the geometric
mean of the covariance of draws and of the inverse of that of gradients (Seyboldt, Carlson and Carpenter 2026, arXiv:2603.18845).
On Gaussian posteriors it is exact as soon as there are more draws than parameters.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine import pytree
from bnnzoo.inference.markov.adaptation import shrunk
from bnnzoo.inference.markov.hamiltonian.kernel import LowRank, Metric

__all__ = [
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
]

type MassMatrix = Literal["auto", "diagonal", "dense", "fisher", "low_rank"]

MOST_PARAMETERS = 256
"""Parameters up to which ``auto`` tries directions; beyond, they cost as much as the gradient of many a model.

With 203, a random walk of log volatility has 6 times the effective draws a gradient, and takes a third of the processor time.
Where directions do not pay, warm-up costs two seconds more for 180 parameters.
"""

MAX_RANK, CUTOFF, REGULAR = 16, 2.0, 1e-5
"""Of a metric of low rank: directions at most, the eigenvalue from which they pay, and what is added to covariances."""

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
        return _without_directions(ones)
    return Metric(ones, ones.clone())


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
    draws, gradients = theta.double(), gradient.double()
    gaussian = torch.ones_like(theta[:, 0, 0], dtype=torch.bool)
    if mass_matrix == "diagonal":
        metric = _diagonal(_variances(draws))
    elif mass_matrix == "dense":
        count = draws.shape[1]
        covariance = _second(draws) / max(count - 1, 1)
        metric = _dense(vmap(partial(shrunk, count=torch.tensor(float(count))))(covariance))
    elif mass_matrix == "fisher":
        metric = _diagonal(_fisher_variances(draws, gradients))
    else:
        spectrum = _spectrum(draws[:, -MOST_DRAWS:], gradients[:, -MOST_DRAWS:])
        metric = _low_rank_metric(spectrum)
        if mass_matrix == "auto":
            gaussian = spectrum.divergence <= GAUSSIAN
            plain = _without_directions(_variances(draws).sqrt())
            metric = _chosen(gaussian, metric, plain)
    return pytree.tree_map(lambda value: value.to(theta), metric), gaussian


def finite_gradients(gradient: Tensor) -> Tensor:
    """Return gradients ``[C, n, P]`` of chains, those that rounding has left without a value replaced by the mean of the others.

    A chain may stand where native code cannot compute its gradient, though the graph by which its start was chosen can.
    """
    known = gradient.isfinite().all(2, keepdim=True)
    mean = gradient.where(known, 0.0).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
    return gradient.where(known, mean)


def growth_of_step(old: Metric, new: Metric, gradient: Tensor) -> Tensor:
    """Return the factors ``[C]`` by which steps can grow when mass matrices change, from gradients ``[C, n, P]`` at draws.

    A leapfrog step is limited by the direction along which gradients vary most, in units of the metric.
    """
    centred = _centred(gradient)
    steep = [_in_units(each.mass_sqrt, _applied(each.inverse_mass, centred)) for each in (old, new)]
    factor = (_steepest(steep[0]) / _steepest(steep[1])).sqrt()
    return torch.where(factor.isfinite() & (factor > 0), factor, torch.ones_like(factor))


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
    moved = (theta[:, -num_new:].mean(1) - theta[:, :-num_new].mean(1)).abs() / theta.std(1)
    changed = (_own_variances(new) / _own_variances(old)).log().abs()
    centred = _centred(theta)
    lengths = [_steepest(_in_units(each.mass_sqrt, centred)) for each in (old, new)]
    grown = torch.stack([growth.to(theta), (lengths[0] / lengths[1]).sqrt()], 1).log().abs()
    limits = ((moved, MOST_MOVED), (changed, math.log(MOST_CHANGED)), (grown, math.log(MOST_GROWN)))
    return torch.stack([(value <= limit).all(1) for value, limit in limits]).all(0)


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
    if isinstance(inverse, LowRank):
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
    return _diagonal(inverse_mass) if inverse_mass.ndim == 2 else _dense(inverse_mass)


def _own_variances(metric: Metric) -> Tensor:
    """Return the diagonals ``[C, P]`` of inverse masses."""
    inverse = metric.inverse_mass
    if isinstance(inverse, LowRank):
        along = (inverse.directions.square() * (inverse.eigenvalues - 1)[:, None]).sum(2)
        return inverse.left.square() * (1 + along)
    return inverse if inverse.ndim == 2 else inverse.diagonal(dim1=1, dim2=2)


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(1, keepdim=True)


def _second(values: Tensor) -> Tensor:
    centred = _centred(values)
    return _product(centred.mT, centred)


def _variances(theta: Tensor) -> Tensor:
    """Return the shrunk variances ``[C, P]`` of draws."""
    count = theta.shape[1]
    found = _centred(theta).square().sum(1) / max(count - 1, 1)
    return shrunk(found.flatten(), torch.tensor(float(count))).view_as(found)


def _fisher_variances(theta: Tensor, gradient: Tensor) -> Tensor:
    """Return the diagonals ``[C, P]`` of least Fisher divergence: 1 where draws do not move, finite where gradients do not."""
    wide, steep = _centred(theta).square().mean(1), _centred(gradient).square().mean(1)
    steep = torch.maximum(steep, LEAST_INFORMATION / wide.clamp(min=1e-300))
    return torch.where(wide > 0, (wide / steep).sqrt(), torch.ones_like(wide)).clamp(1e-20, 1e20)


class _Spectrum(NamedTuple):
    """Fisher estimates of covariances in units of the diagonal ones, and draws and gradients in these units.

    Attributes
    ----------
    scale : Tensor
        Roots ``[C, P]`` of the diagonal estimates.
    wide, steep : Tensor
        Centred draws and gradients ``[C, n, P]``.
    axes, logs : Tensor
        Eigenvectors ``[C, P, m]`` on what both span, and logarithms ``[C, m]`` of their eigenvalues, ascending; all others are 1.
    """

    scale: Tensor
    wide: Tensor
    steep: Tensor
    axes: Tensor
    logs: Tensor

    @property
    def divergence(self) -> Tensor:
        """Fisher divergence a parameter ``[C]`` from Gaussians with these covariances, of which no direction is left out."""
        root = (self.logs / 2).exp()[:, None]
        misfit = _product(self.wide, self.axes) / root + _product(self.steep, self.axes) * root
        return misfit.square().sum((1, 2)) / self.wide[0].numel()


def _spectrum(theta: Tensor, gradient: Tensor) -> _Spectrum:
    count, size = theta.shape[1:]
    scale = _fisher_variances(theta, gradient).sqrt()
    wide, steep = _centred(theta / scale[:, None]), _centred(gradient * scale[:, None])
    basis = torch.eye(size).to(theta).expand(len(theta), -1, -1)
    if 2 * count < size:
        basis, _ = _one_by_one(torch.linalg.qr, torch.cat([wide, steep], 1).mT)
    covariances = (_regular(_product(each, basis)) for each in (wide, steep))
    values, vectors = _one_by_one(torch.linalg.eigh, _geometric_mean(*covariances))
    return _Spectrum(scale, wide, steep, _product(basis, vectors), values.clamp(1e-12, 1e12).log())


def _low_rank_metric(spectrum: _Spectrum) -> Metric:
    """Return inverse masses ``S (I + U (L - 1) U^T) S``, with a diagonal S and few orthonormal directions U.

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
            low, high = low.clamp(max=0), high.clamp(min=0)
        first = (high - low).argmin(1, keepdim=True)
        centre = (low + high).gather(1, first) / 2
        places = torch.arange(found, device=logs.device)
        logs = torch.where((places < first) | (places >= first + found - rank), logs - centre, 0)
        scale = scale * (centre / 2).exp()
    logs = torch.where(logs.abs() > math.log(CUTOFF), logs, 0)
    kept = logs.abs().topk(min(rank, found), 1).indices
    logs = logs.gather(1, kept)
    directions = spectrum.axes.gather(2, kept[:, None].expand(-1, size, -1)) * (logs != 0)[:, None]
    missing = rank - kept.shape[1]
    eigenvalues = torch.cat([logs.exp(), logs.new_ones(len(logs), missing)], 1)
    return _low_rank(scale, torch.cat([directions, directions.new_zeros(len(logs), size, missing)], 2), eigenvalues)


def _regular(values: Tensor) -> Tensor:
    """Return the covariances of centred ``values[C, n, d]``, a little of the identity added."""
    return _product(values.mT, values) / values.shape[1] + REGULAR * torch.eye(values.shape[2]).to(values)


def _geometric_mean(first: Tensor, second: Tensor) -> Tensor:
    """Return matrices G with ``G second G = first``, for positive definite ones ``[C, d, d]``."""
    values, vectors = _one_by_one(torch.linalg.eigh, second)
    values = values.clamp(min=REGULAR)[:, None]
    root, inverse = (_product(vectors * values**power, vectors.mT) for power in (0.5, -0.5))
    values, vectors = _one_by_one(torch.linalg.eigh, _product(root, first, root))
    return _product(inverse, vectors * values.clamp(min=0).sqrt()[:, None], vectors.mT, inverse)


def _product(*matrices: Tensor) -> Tensor:
    """Return products of matrices of chains."""
    (found,) = _one_by_one(lambda first, *others: (reduce(torch.mm, others, first),), *matrices)
    return found


def _one_by_one(function: Callable[..., Sequence[Tensor]], *matrices: Tensor) -> tuple[Tensor, ...]:
    """Return the values of a function of the matrices of a chain for each.

    The library behind torch rounds differently by where in memory a matrix begins: in one batch, draws of a chain would depend on
    the number and the state of the others.
    """
    found = [function(*(each.clone() for each in of_chain)) for of_chain in zip(*matrices, strict=True)]
    return tuple(torch.stack(each) for each in zip(*found, strict=True))


def _applied(matrix: Tensor | LowRank, rows: Tensor) -> Tensor:
    """Return matrices of chains times ``rows[C, n, P]``."""
    if isinstance(matrix, LowRank):
        scaled = rows * matrix.right[:, None]
        along = _product(scaled, matrix.directions) * (matrix.eigenvalues - 1)[:, None]
        return matrix.left[:, None] * (scaled + _product(along, matrix.directions.mT))
    return rows * matrix[:, None] if matrix.ndim == 2 else _product(rows, matrix.mT)


def _in_units(root: Tensor | LowRank, rows: Tensor) -> Tensor:
    """Return ``A^T`` times rows, for ``A A^T`` the mass matrix: differences of draws in units in which that is the identity."""
    if isinstance(root, LowRank):
        return _applied(root._replace(left=root.right, right=root.left), rows)
    return _applied(root if root.ndim == 2 else root.mT, rows)


def _steepest(rows: Tensor) -> Tensor:
    """Return the largest eigenvalues ``[C]`` of ``rows^T rows``, ``rows[C, n, P]``, by power iteration from the longest row."""
    longest = rows.square().sum(2).argmax(1)
    direction = rows.gather(1, longest[:, None, None].expand(-1, 1, rows.shape[2]))
    squares = _product(rows.mT, rows)
    for _ in range(POWER_STEPS):
        direction = direction / direction.norm(dim=2, keepdim=True).clamp(min=1e-300)
        direction = (squares * direction).sum(2)[:, None]
    return direction.norm(dim=2)[:, 0]


def _low_rank(scale: Tensor, directions: Tensor, eigenvalues: Tensor) -> Metric:
    inverse_mass = LowRank(scale, directions, eigenvalues, scale)
    return Metric(inverse_mass, LowRank(1 / scale, directions, eigenvalues.rsqrt(), torch.ones_like(scale)))


def _chosen(condition: Tensor, yes: Metric, no: Metric) -> Metric:
    """Return one or the other for each chain, by truth values ``[C]``."""
    found: Metric = pytree.tree_map(
        lambda one, other: torch.where(condition.view(-1, *[1] * (one.ndim - 1)), one, other), yes, no
    )
    return found


def _without_directions(scale: Tensor) -> Metric:
    """Return diagonal metrics of ``scale[..., P]`` in the shape of those of low rank."""
    rank = min(scale.shape[-1], MAX_RANK)
    return _low_rank(scale, scale.new_zeros(*scale.shape, rank), scale.new_ones(*scale.shape[:-1], rank))


def _diagonal(variance: Tensor) -> Metric:
    return Metric(variance, variance.rsqrt())


def _dense(covariance: Tensor) -> Metric:
    def root(matrix: Tensor) -> tuple[Tensor]:
        tril = torch.linalg.cholesky(matrix)
        return (torch.linalg.solve_triangular(tril, torch.eye(len(tril)).to(tril), upper=False).mT,)

    return Metric(covariance, *_one_by_one(root, covariance))
