"""Units in which a bound is maximised: a centre and scales near the posterior, from curvature or from an earlier fit."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Covariance, Dense, Diagonal
from bnnzoo.engine.failures import FailuresAsNaN
from bnnzoo.inference.optimise.pathfinder import MAX_ELEMENTS, Frame
from bnnzoo.inference.variational.elbo import GaussianFamily, VariationalFamily

__all__ = ["Framed", "FramedGaussian", "frame_of", "has_settled", "mean_bound"]

NUM_PAIRS, SETTLED = 256, 0.02
"""Pairs of draws by which the bound is compared before and after a search, and the nats by which it may still rise."""


@runtime_checkable
class Framed(VariationalFamily, Protocol):
    """Families whose parameters can be given relative to a frame."""

    def at(self, params: Tensor, frame: Frame) -> Tensor:
        """Return the parameters ``[Q]`` of what ``params[Q]`` are in a frame of one fit."""
        ...


@runtime_checkable
class FramedGaussian(Framed, GaussianFamily, Protocol):
    """Gaussian families of that kind, whose members are frames themselves."""


def frame_of(loc: Tensor, covariance: Covariance, before: Frame | None = None) -> Frame:
    """Return the frame ``[P]`` of a fitted Gaussian; its directions stay those of the frame before where it has none."""
    if isinstance(covariance, Diagonal) and before is not None:
        return Frame(loc, before.root, covariance.diagonal().sqrt())
    double = covariance.scale_tril.double() if isinstance(covariance, Dense) else _root(covariance.dense())
    return Frame(loc, double.to(loc), torch.cholesky_inverse(double).diagonal().rsqrt().to(loc))


def _root(covariance: Tensor) -> Tensor:
    """Return the Cholesky factor of ``covariance[P, P]`` in double precision, even if rounding has left it singular."""
    size = covariance.double().diagonal().sqrt()
    correlation = covariance.double() / (size * size[:, None])
    values, vectors = torch.linalg.eigh(correlation)
    values = values.clamp(min=float(values.max()) * torch.finfo(covariance.dtype).eps)
    # The R of a QR decomposition of half a covariance is its Cholesky factor, which needs no square of the rounding errors.
    upper = torch.linalg.qr((size[:, None] * vectors * values.sqrt()).mT).R
    return upper.mT * upper.diagonal().sign()


def mean_bound(density: LogDensity, family: FramedGaussian, params: Tensor) -> Tensor:
    """Return estimates of the bound ``[C, S]`` at ``params[C, Q]``, one for each pair of antithetic draws, always the same.

    Minus infinity for pairs of which a draw cannot be evaluated.
    """
    generator = torch.Generator().manual_seed(1)
    half = torch.randn(NUM_PAIRS, family.noise_size(density.num_params), generator=generator, dtype=torch.float64)
    noise = torch.cat([half, -half]).to(params)

    def term(z: Tensor, row: Tensor, *data: Any) -> Tensor:
        theta = family.draw(row, z)
        return density.log_joint(theta, *data) - family.log_prob(row, theta)

    size = max(1, MAX_ELEMENTS // (4 * max(1, density.num_data)))
    terms = density.over_points(("bound", family), term, chunk_size=size)
    with FailuresAsNaN():
        found = torch.stack([terms(noise, row, *density.data) for row in params])
    return found.nan_to_num(-torch.inf).unflatten(1, (2, NUM_PAIRS)).mean(1).detach()


def has_settled(before: Tensor, now: Tensor) -> bool:
    """Tell whether a search raised no bound ``[C, S]`` by more than 0.02 nats and three of its standard errors.

    Pairs of draws that could not be evaluated before or now do not count.
    """
    rise = (now - before).nan_to_num(0.0, 0.0, 0.0)
    error = rise.std(1) / rise.shape[1] ** 0.5
    return bool((rise.mean(1) <= torch.maximum(3 * error, torch.full_like(error, SETTLED))).all())
