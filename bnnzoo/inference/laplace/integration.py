"""The posterior of a hierarchy as a mixture over its hyperparameters, with a Gaussian of all others given each value."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Dense
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.inference.laplace.conditionals import ConditionalModes, Conditionals

__all__ = ["MAX_INTEGRATED", "MAX_OTHERS", "integrated"]

MAX_INTEGRATED = 6  # hyperparameters over which to integrate
MAX_OTHERS = 500  # other parameters, whose covariances are dense, one for each point
POINTS = {1: 40, 2: 9, 3: 5}  # on each axis of the grid
NUM_QUASI_RANDOM = 256  # points in more dimensions
MAX_DROP = 12.0  # of the log density along an axis, in nats: what lies beyond is left out
STEP, REACH = 0.5, (8, 16, 48)  # standard deviations by the curvature, and steps for which an axis is followed
DIFFERENCE = 0.1  # in unconstrained space, for the curvature of the marginal density
FLAT = 1 / 9  # least curvature that an axis is taken to have
TEMPERATURE = 1.5  # at which points are placed: more of them in the tails
KERNEL = 0.6  # standard deviation of a component's hyperparameters, in distances between points
MAX_KERNEL = 0.8  # in lengths over which the density falls by a factor of e
MIN_WEIGHT = 1e-6


def integrated(density: LogDensity, best: Gaussian, index: Tensor, others: Tensor, damping: float) -> Mixture | None:
    r"""Return the posterior integrated over hyperparameters; None where their marginal density has no peak to integrate over.

    .. math:: q(\phi, w) = \sum_i \omega_i \, N(\phi; \phi_i, K_i) \, N(w; m_i + B_i (\phi - \phi_i), \Sigma_i)

    with the mode :math:`m_i` of the others given :math:`\phi_i`, the exact Hessian there, and the slope :math:`B_i` of the mode.
    The points lie on the axes of the marginal density's own curvature, at quantiles of its slices along them, on a grid in up
    to three dimensions and quasi-random in more, and have the weights of the marginal density over that of the slices.

    Parameters
    ----------
    density : LogDensity
    best : Gaussian
        Approximation at the mode of the marginal density.
    index, others : Tensor [H], [R]
        Hyperparameters and all other entries of theta.
    damping : float
        Added to the diagonal of the others' precision.

    References
    ----------
    Rue, Martino and Chopin (2009), Approximate Bayesian inference for latent Gaussian models by using integrated nested
    Laplace approximations, JRSS B 71. Liu and West (2001), Combined parameter and state estimation in simulation-based
    filtering (kernels that keep the covariance).
    """
    conditionals = Conditionals(density, index, others, damping)
    centre = conditionals.at(best.loc[index][None], best.loc[None])
    if not bool(centre.log_marginal.isfinite()):
        return None
    slope = torch.zeros(len(index), density.num_params).to(best.loc)
    slope = slope.index_copy(1, others, conditionals.slopes(centre.precision)[1][0].mT)
    around = _Around(conditionals, centre, index, slope)
    axes = _axes(around)
    places, log_proposal, spread = _points([_Slice.of(*each) for each in around.along(axes)])
    given = around.at(places @ axes.mT)
    log_weights = given.log_marginal - log_proposal
    evidence = log_weights.logsumexp(0) - math.log(len(log_weights)) + torch.linalg.slogdet(axes).logabsdet
    keep = log_weights - log_weights.logsumexp(0) > math.log(MIN_WEIGHT)
    if not bool(keep.any()):
        return None
    weights = log_weights[keep].softmax(0)
    shrunk = _shrunk(places[keep], weights, spread[keep])
    away, kernel = (shrunk - places[keep]) @ axes.mT, axes * spread[keep][:, None, :]
    covariance, slope = conditionals.slopes(given.precision[keep])
    theta = conditionals.corrected(given.theta[keep], covariance).index_add(1, index, away)
    theta = theta.index_add(1, others, (slope @ away[..., None])[..., 0])
    info = replace(
        best.info,
        num_gradients=best.info.num_gradients + conditionals.num_gradients,
        config={
            **best.info.config,
            "integrated_over": [site.name for site in density.sites if bool((index == site.span.start).any())],
            "log_evidence": float(evidence),
        },
    )
    roots = _joint_roots(covariance, slope, kernel, index, others)
    parts = tuple(
        Gaussian(density, info, loc, Dense(root.to(loc.dtype))) for loc, root in zip(theta, roots, strict=True)
    )
    return Mixture(density, info, parts, log_weights[keep])


@dataclass(frozen=True)
class _Around:
    """The marginal density around its mode."""

    conditionals: Conditionals
    centre: ConditionalModes
    index: Tensor
    slope: Tensor

    def at(self, away: Tensor) -> ConditionalModes:
        """Return what is given hyperparameters that are ``away[M, H]`` from the mode."""
        start = self.centre.theta + away @ self.slope
        return self.conditionals.at(self.centre.theta[0, self.index] + away, start)

    def along(self, axes: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return places ``[S]`` along each of the axes ``[H, H]``, in standard deviations, and the log density there."""
        found = []
        values = {(k, 0): float(self.centre.log_marginal[0]) for k in range(len(axes))}
        ends = [(k, side) for k in range(len(axes)) for side in (-1, 1)]
        for reach in REACH:
            wanted = [
                (k, side * step) for k, side in ends for step in range(1, reach + 1) if (k, side * step) not in values
            ]
            away = torch.stack([STEP * step * axes[:, k] for k, step in wanted])
            values |= dict(zip(wanted, self.at(away).log_marginal.tolist(), strict=True))
            ends = [(k, side) for k, side in ends if values[k, side * reach] > values[k, 0] - MAX_DROP]
            if not ends:
                break
        for k in range(len(axes)):
            steps = sorted(step for axis, step in values if axis == k)
            heights = torch.tensor([values[k, step] for step in steps]).to(axes)
            found.append((STEP * torch.tensor(steps).to(axes), heights))
        return found


def _axes(around: _Around) -> Tensor:
    """Return the axes ``[H, H]`` of the marginal density's curvature, as columns of one standard deviation each."""
    size = len(around.index)
    unit = DIFFERENCE * torch.eye(size).to(around.slope)
    signs = (1, -1)
    moves = torch.stack(
        [a * unit[i] + b * unit[j] for i in range(size) for j in range(size) for a in signs for b in signs]
    )
    found = around.at(moves).log_marginal.reshape(size, size, 4)
    hessian = -(found @ torch.tensor([1.0, -1.0, -1.0, 1.0]).to(found)) / (4 * DIFFERENCE**2)
    # where the density has no peak nearby, it is minus infinity, and says nothing of the curvature
    values, vectors = torch.linalg.eigh(hessian.nan_to_num(0.0, posinf=0.0, neginf=0.0))
    return vectors * values.clamp(min=FLAT).rsqrt()


@dataclass(frozen=True)
class _Slice:
    """The marginal density along one axis: places ``[T]``, its density and distribution function there, tempered."""

    places: Tensor
    density: Tensor
    cumulative: Tensor

    @classmethod
    def of(cls, coarse: Tensor, values: Tensor) -> "_Slice":
        """Return the slice through the log density ``values[S]`` at places ``coarse[S]``."""
        ends = (values > values.max() - MAX_DROP).nonzero()[:, 0]
        first, end = max(0, int(ends.min()) - 1), min(len(coarse) - 1, int(ends.max()) + 1)
        fine = torch.linspace(float(coarse[first]), float(coarse[end]), 40 * (end - first) + 1).to(coarse)
        part = slice(first, end + 1)
        height = _interpolated(coarse[part], values[part].clamp(min=values.max() - 2 * MAX_DROP), fine)
        density = ((height - height.max()) / TEMPERATURE).exp()
        cumulative = torch.cat([density.new_zeros(1), (density[1:] + density[:-1]).cumsum(0)]) / 2 * (fine[1] - fine[0])
        return cls(fine, density / cumulative[-1], cumulative / cumulative[-1])

    def at(self, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the quantiles of ``share[M]``, the density there, and the length over which that falls by a factor of e."""
        right = torch.searchsorted(self.cumulative, share).clamp(1, len(self.places) - 1)
        low, high = self.cumulative[right - 1], self.cumulative[right]
        part = ((share - low) / (high - low).clamp(min=1e-300)).clamp(0.0, 1.0)
        place = self.places[right - 1].lerp(self.places[right], part)
        slope = (
            TEMPERATURE
            * (self.density[right].log() - self.density[right - 1].log())
            / (self.places[1] - self.places[0])
        )
        return place, self.density[right - 1].lerp(self.density[right], part), 1 / slope.abs()


def _interpolated(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """Return the cubic through the points ``x[T], y[T]`` with the slopes of central differences, at other places."""
    slope = torch.gradient(y, spacing=(x,))[0]
    right = torch.searchsorted(x, at).clamp(1, len(x) - 1)
    width = x[right] - x[right - 1]
    t = (at - x[right - 1]) / width
    left, here = y[right - 1], y[right]
    bend_left, bend_right = slope[right - 1] * width - (here - left), -slope[right] * width + (here - left)
    return (1 - t) * left + t * here + t * (1 - t) * ((1 - t) * bend_left + t * bend_right)


def _points(slices: list[_Slice]) -> tuple[Tensor, Tensor, Tensor]:
    """Return places ``[M, H]`` along the axes, the log density ``[M]`` with which they lie there, and kernels' sds ``[M, H]``."""
    size, like = len(slices), slices[0].places
    if size in POINTS:
        count = float(POINTS[size])
        once = (torch.arange(POINTS[size]).to(like) + 0.5) / count
        shares = torch.cartesian_prod(*[once] * size).reshape(-1, size)
    else:
        count = NUM_QUASI_RANDOM ** (1 / size)
        engine = torch.quasirandom.SobolEngine(size, scramble=True, seed=0)
        shares = engine.draw(NUM_QUASI_RANDOM, dtype=torch.float64).to(like).clamp(1e-6, 1 - 1e-6)
    found = [each.at(shares[:, k].contiguous()) for k, each in enumerate(slices)]
    places, density, length = (torch.stack(each, 1) for each in zip(*found, strict=True))
    spread = (KERNEL / (count * density)).clamp(max=1.0)
    if size not in POINTS:  # kernels are wide there, beside the steep side of a skewed slice
        spread = spread.minimum(MAX_KERNEL * length)
    return places, density.log().sum(1), spread


def _shrunk(places: Tensor, weights: Tensor, spread: Tensor) -> Tensor:
    """Return places ``[M, H]`` so much closer together that with the kernels they have the variance that they have alone."""
    mean = weights @ places
    variance, added = weights @ (places - mean) ** 2, weights @ spread**2
    return mean + (places - mean) * (1 - added / variance.clamp(min=1e-300)).clamp(min=0.0).sqrt()


def _joint_roots(covariance: Tensor, slope: Tensor, kernel: Tensor, index: Tensor, others: Tensor) -> Tensor:
    """Return the Cholesky factors ``[M, P, P]`` of hyperparameters with ``kernel[M, H, H]`` as root and others given them.

    They come from roots, and not from the joint covariances: others that follow their hyperparameters closely, as effects do
    where their scale is small, are correlated beyond what its entries hold.
    """
    num_given, size = len(index), len(index) + len(others)
    root = covariance.new_zeros(len(covariance), size, size)
    root[:, index, :num_given] = kernel
    root[:, others, :num_given] = slope @ kernel
    root[:, others, num_given:] = torch.linalg.cholesky(covariance)
    factor = torch.linalg.qr(root.mT, mode="r").R.mT
    return factor * factor.diagonal(dim1=1, dim2=2).sign()[:, None, :]
