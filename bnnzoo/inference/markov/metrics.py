"""Mass matrices of single chains, estimated from draws and gradients of warm-up.

The covariance S of a Gaussian whose scores are nearest to the gradients of a density, in the Fisher divergence, is the geometric
mean of the covariance of draws and of the inverse of that of gradients (Seyboldt, Carlson and Carpenter 2026, arXiv:2603.18845).
On Gaussian posteriors it is exact as soon as there are more draws than parameters.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine import pytree
from bnnzoo.inference.markov.adaptation import shrunk
from bnnzoo.inference.markov.hamiltonian.kernel import LowRank, Metric, transposed_root, velocity

__all__ = [
    "MOST_PARAMETERS",
    "MassMatrix",
    "drifts",
    "growth_of_step",
    "has_converged",
    "identity_metric",
    "inverse_mass_of",
    "mass_matrix_for",
    "metric_and_normality",
    "metric_from",
    "metric_of",
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


def metric_from(theta: Tensor, gradient: Tensor, mass_matrix: MassMatrix) -> Metric:
    """Return the mass matrix of one chain estimated from draws and gradients there.

    Parameters
    ----------
    theta, gradient : Tensor
        Draws and gradients of the log density there, ``[n, P]`` each.
    mass_matrix : {"auto", "diagonal", "dense", "fisher", "low_rank"}
        Variances or the covariance of draws, shrunk towards 0.001 with the weight of five draws, as in Stan; the diagonal that
        minimises the Fisher divergence; this and few directions; or, for ``auto``, ``low_rank`` where draws and gradients are
        nearly those of a Gaussian, and ``diagonal`` elsewhere.
    """
    return metric_and_normality(theta, gradient, mass_matrix)[0]


def metric_and_normality(theta: Tensor, gradient: Tensor, mass_matrix: MassMatrix) -> tuple[Metric, Tensor]:
    """Return :func:`metric_from`, and for ``auto`` whether draws and gradients are nearly those of a Gaussian, else True."""
    draws, gradients, gaussian = theta.double(), gradient.double(), torch.ones_like(theta[0, 0], dtype=torch.bool)
    if mass_matrix == "diagonal":
        metric = _diagonal(_variances(draws))
    elif mass_matrix == "dense":
        covariance = _second(draws) / max(len(draws) - 1, 1)
        metric = _dense(shrunk(covariance, torch.tensor(float(len(draws)))))
    elif mass_matrix == "fisher":
        metric = _diagonal(_fisher_variances(draws, gradients))
    else:
        draws, gradients = draws[-MOST_DRAWS:], gradients[-MOST_DRAWS:]
        spectrum = _spectrum(draws, gradients)
        metric = _low_rank_metric(spectrum)
        if mass_matrix == "auto":
            gaussian = spectrum.divergence <= GAUSSIAN
            plain = _without_directions(_variances(theta.double()).sqrt())
            metric = pytree.tree_map(lambda yes, no: torch.where(gaussian, yes, no), metric, plain)
    return pytree.tree_map(lambda value: value.to(theta), metric), gaussian


def growth_of_step(old: Metric, new: Metric, gradient: Tensor) -> Tensor:
    """Return the factor ``[]`` by which a step can grow when one chain's mass matrix changes, from gradients ``[n, P]`` at draws.

    A leapfrog step is limited by the direction along which gradients vary most, in units of the metric.
    """
    factor = (_steepest(_steep(old, gradient)) / _steepest(_steep(new, gradient))).sqrt()
    return torch.where(factor.isfinite() & (factor > 0), factor, torch.ones_like(factor))


def has_converged(old: Metric, new: Metric, theta: Tensor, growth: Tensor, num_new: int) -> Tensor:
    """Return whether one chain has nothing to learn from more warm-up ``[]``: draws are where they were, and as wide.

    Parameters
    ----------
    old, new : Metric
        Under which the last draws were taken, and estimated from them.
    theta : Tensor
        Draws ``[n, P]`` of the last two windows.
    growth : Tensor
        Factor ``[]`` by which the step can grow; see :func:`growth_of_step`.
    num_new : int
        How many of them are of the last one.
    """
    moved = (theta[-num_new:].mean(0) - theta[:-num_new].mean(0)).abs() / theta.std(0)
    changed = (_own_variances(new) / _own_variances(old)).log().abs()
    lengths = [_steepest(vmap(partial(transposed_root, each))(_centred(theta))) for each in (old, new)]
    grown = torch.stack([growth.to(theta), (lengths[0] / lengths[1]).sqrt()]).log().abs()
    limits = ((moved, MOST_MOVED), (changed, math.log(MOST_CHANGED)), (grown, math.log(MOST_GROWN)))
    return torch.stack([(value <= limit).all() for value, limit in limits]).all()


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
    return _diagonal(inverse_mass) if inverse_mass.ndim == 2 else vmap(_dense)(inverse_mass)


def _own_variances(metric: Metric) -> Tensor:
    """Return the diagonal ``[P]`` of the inverse mass of one chain."""
    inverse = metric.inverse_mass
    if isinstance(inverse, LowRank):
        return inverse.left.square() * (1 + inverse.directions.square() @ (inverse.eigenvalues - 1))
    return inverse if inverse.ndim == 1 else inverse.diagonal()


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(0)


def _second(values: Tensor) -> Tensor:
    centred = _centred(values)
    return centred.mT @ centred


def _variances(theta: Tensor) -> Tensor:
    """Return the shrunk variances ``[P]`` of draws."""
    found = _centred(theta).square().sum(0) / max(len(theta) - 1, 1)
    return shrunk(found, torch.tensor(float(len(theta))))


def _fisher_variances(theta: Tensor, gradient: Tensor) -> Tensor:
    """Return the diagonal ``[P]`` of least Fisher divergence: 1 where draws do not move, finite where gradients do not."""
    wide, steep = _centred(theta).square().mean(0), _centred(gradient).square().mean(0)
    steep = torch.maximum(steep, LEAST_INFORMATION / wide.clamp(min=1e-300))
    return torch.where(wide > 0, (wide / steep).sqrt(), torch.ones_like(wide)).clamp(1e-20, 1e20)


class _Spectrum(NamedTuple):
    """The Fisher estimate of a covariance in units of its diagonal one, and draws and gradients in these units.

    Attributes
    ----------
    scale : Tensor
        Roots ``[P]`` of the diagonal estimate.
    wide, steep : Tensor
        Centred draws and gradients ``[n, P]``.
    axes, logs : Tensor
        Eigenvectors ``[P, m]`` on what both span, and logarithms ``[m]`` of their eigenvalues, ascending; all others are 1.
    """

    scale: Tensor
    wide: Tensor
    steep: Tensor
    axes: Tensor
    logs: Tensor

    @property
    def divergence(self) -> Tensor:
        """Fisher divergence a parameter ``[]`` from the Gaussian with this covariance, of which no direction is left out."""
        root = (self.logs / 2).exp()
        return ((self.wide @ self.axes) / root + (self.steep @ self.axes) * root).square().sum() / self.wide.numel()


def _spectrum(theta: Tensor, gradient: Tensor) -> _Spectrum:
    size = theta.shape[1]
    scale = _fisher_variances(theta, gradient).sqrt()
    wide, steep = _centred(theta / scale), _centred(gradient * scale)
    basis = torch.linalg.qr(torch.cat([wide, steep]).mT).Q if 2 * len(theta) < size else torch.eye(size).to(theta)
    values, vectors = torch.linalg.eigh(_geometric_mean(_regular(wide @ basis), _regular(steep @ basis)))
    return _Spectrum(scale, wide, steep, basis @ vectors, values.clamp(1e-12, 1e12).log())


def _low_rank_metric(spectrum: _Spectrum) -> Metric:
    """Return the inverse mass ``S (I + U (L - 1) U^T) S`` of one chain, with a diagonal S and few orthonormal directions U.

    At most ``MAX_RANK`` eigenvectors are kept: those without which the eigenvalues of the others lie closest together, since
    the largest of these limits how short trajectories are, and the smallest how long steps are. S is in the middle of them.
    Directions that differ from it by a factor up to ``CUTOFF`` are left out; columns that are missing are zero, so that shapes
    are the same for every chain.
    """
    (size, found), logs = spectrum.axes.shape, spectrum.logs
    rank, scale = min(size, MAX_RANK), spectrum.scale
    if found > rank:
        low, high = logs[: rank + 1], logs[found - rank - 1 :]  # without the first k and the last rank - k
        if found < size:
            low, high = low.clamp(max=0), high.clamp(min=0)
        first = (high - low).argmin()
        centre = (low + high).index_select(0, first.view(1)) / 2
        places = torch.arange(found, device=logs.device)
        logs = torch.where((places < first) | (places >= first + found - rank), logs - centre, 0)
        scale = scale * (centre / 2).exp()
    logs = torch.where(logs.abs() > math.log(CUTOFF), logs, 0)
    kept = logs.abs().topk(min(rank, found)).indices
    directions = spectrum.axes[:, kept] * (logs[kept] != 0)
    missing = rank - len(kept)
    eigenvalues = torch.cat([logs[kept].exp(), logs.new_ones(missing)])
    return _low_rank(scale, torch.cat([directions, directions.new_zeros(size, missing)], 1), eigenvalues)


def _regular(values: Tensor) -> Tensor:
    """Return the covariance of centred ``values[n, d]``, a little of the identity added."""
    return values.mT @ values / len(values) + REGULAR * torch.eye(values.shape[1]).to(values)


def _geometric_mean(first: Tensor, second: Tensor) -> Tensor:
    """Return the matrix G with ``G second G = first``, for positive definite ones ``[d, d]``."""
    values, vectors = torch.linalg.eigh(second)
    values = values.clamp(min=REGULAR)
    root, inverse = ((vectors * values**power) @ vectors.mT for power in (0.5, -0.5))
    values, vectors = torch.linalg.eigh(root @ first @ root)
    return inverse @ ((vectors * values.clamp(min=0).sqrt()) @ vectors.mT) @ inverse


def _steep(metric: Metric, gradient: Tensor) -> Tensor:
    """Return ``L^T gradient`` ``[n, P]`` of centred gradients, for ``M^-1 = L L^T``."""
    return vmap(lambda value: transposed_root(metric, velocity(metric, value)))(_centred(gradient))


def _steepest(steep: Tensor) -> Tensor:
    """Return the largest eigenvalue ``[]`` of ``steep^T steep`` by power iteration, from the longest row."""
    direction = steep.index_select(0, steep.square().sum(1).argmax().view(1))[0]
    for _ in range(POWER_STEPS):
        direction = steep.mT @ (steep @ direction)
        direction = direction / direction.norm().clamp(min=1e-300)
    return (steep @ direction).square().sum()


def _low_rank(scale: Tensor, directions: Tensor, eigenvalues: Tensor) -> Metric:
    inverse_mass = LowRank(scale, directions, eigenvalues, scale)
    return Metric(inverse_mass, LowRank(1 / scale, directions, eigenvalues.rsqrt(), torch.ones_like(scale)))


def _without_directions(scale: Tensor) -> Metric:
    """Return diagonal metrics of ``scale[..., P]`` in the shape of those of low rank."""
    rank = min(scale.shape[-1], MAX_RANK)
    return _low_rank(scale, scale.new_zeros(*scale.shape, rank), scale.new_ones(*scale.shape[:-1], rank))


def _diagonal(variance: Tensor) -> Metric:
    return Metric(variance, variance.rsqrt())


def _dense(covariance: Tensor) -> Metric:
    tril = torch.linalg.cholesky(covariance)
    eye = torch.eye(len(tril)).to(tril)
    return Metric(covariance, torch.linalg.solve_triangular(tril, eye, upper=False).mT)
