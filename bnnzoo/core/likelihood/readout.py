"""Likelihoods read as distributions of unconstrained parameters: families whose Fisher information has a closed form."""

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import ExpandedDistribution, MaskedDistribution
from torch import Tensor
from torch.distributions import Distribution, Independent

from bnnzoo.core.likelihood.families import Family, LogPoisson
from bnnzoo.core.likelihood.general_readout import Readout, fisher_root, general_read
from bnnzoo.core.likelihood.survival import RightCensored
from bnnzoo.core.likelihood.weighted import Weighted

__all__ = ["read"]


def read(distribution: Distribution) -> Readout:
    """Read the parameters of a distribution of batch shape [...].

    Families without a closed form here are read from what they declare; see
    :func:`bnnzoo.core.likelihood.general_readout.general_read`.

    Raises
    ------
    UnreadableLikelihood
        If the distribution has no parameters that can be read.

    Examples
    --------
    >>> found = read(dist.Normal(torch.zeros(3), 2.0))
    >>> [block.shape for block in found.coordinates]
    [torch.Size([3, 1]), torch.Size([3, 1])]
    >>> found.roots[0][0]
    tensor([[0.5000]])
    """
    return _read(distribution)


@singledispatch
def _read(distribution: Distribution) -> Readout:
    return general_read(distribution, _read)


def _scalar_blocks(
    values: tuple[Tensor, ...], fisher: tuple[Tensor, ...], build: Callable[..., Distribution], shape: torch.Size
) -> Readout:
    """Make a readout of scalar coordinates with a diagonal Fisher information."""
    coordinates = tuple(value.expand(shape)[..., None] for value in values)
    weight = torch.ones_like(coordinates[0][..., 0]).detach()

    def roots() -> tuple[Tensor, ...]:
        return tuple(entry.expand(shape).sqrt()[..., None, None] for entry in fisher)

    return Readout(coordinates, roots, lambda z: build(*(block[..., 0] for block in z)), weight)


@_read.register
def _(distribution: torch.distributions.Normal) -> Readout:
    scale = distribution.scale
    fisher = (scale**-2, torch.full_like(scale, 2.0))
    values = (distribution.loc, scale.log())
    return _scalar_blocks(values, fisher, lambda m, s: dist.Normal(m, s.exp()), distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.LogNormal) -> Readout:
    scale = distribution.scale
    fisher = (scale**-2, torch.full_like(scale, 2.0))
    values = (distribution.loc, scale.log())
    return _scalar_blocks(values, fisher, lambda m, s: dist.LogNormal(m, s.exp()), distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.Laplace) -> Readout:
    scale = distribution.scale
    fisher = (scale**-2, torch.ones_like(scale))
    values = (distribution.loc, scale.log())
    return _scalar_blocks(values, fisher, lambda m, s: dist.Laplace(m, s.exp()), distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.StudentT) -> Readout:
    df, scale, shape = distribution.df, distribution.scale, distribution.batch_shape
    loc = distribution.loc.expand(shape)[..., None]
    log_scale_and_df = torch.stack([scale.log().expand(shape), df.log().expand(shape)], -1)

    def build(blocks: tuple[Tensor, ...]) -> Distribution:
        log_scale, log_df = blocks[1].unbind(-1)
        return dist.StudentT(log_df.exp(), blocks[0][..., 0], log_scale.exp(), validate_args=False)

    def roots() -> tuple[Tensor, ...]:
        of_loc = ((df + 1) / ((df + 3) * scale**2)).expand(shape)
        return of_loc.sqrt()[..., None, None], _two_by_two_root(_information_of_scale_and_df(df.expand(shape)))

    return Readout((loc, log_scale_and_df), roots, build, torch.ones_like(loc[..., 0]).detach())


def _information_of_scale_and_df(df: Tensor) -> Tensor:
    """Return the Fisher information ``[..., 2, 2]`` of the log scale and the log degrees of freedom of Student's t.

    References
    ----------
    Lange, Little and Taylor (1989), Robust statistical modeling using the t distribution, Journal of the American Statistical
    Association 84.
    """
    of_df = (torch.polygamma(1, df / 2) - torch.polygamma(1, (df + 1) / 2)) / 4
    of_df = of_df - (df + 5) / (2 * df * (df + 1) * (df + 3))
    scale, both = 2 * df / (df + 3), -2 * df / ((df + 1) * (df + 3))
    return torch.stack([torch.stack([scale, both], -1), torch.stack([both, df**2 * of_df], -1)], -2)


@_read.register
def _(distribution: torch.distributions.Bernoulli) -> Readout:
    p = torch.sigmoid(distribution.logits)
    return _scalar_blocks(
        (distribution.logits,), (p * (1 - p),), lambda z: dist.Bernoulli(logits=z), distribution.batch_shape
    )


@_read.register
def _(distribution: torch.distributions.Binomial) -> Readout:
    p, count = torch.sigmoid(distribution.logits), distribution.total_count
    fisher = (count * p * (1 - p),)
    return _scalar_blocks(
        (distribution.logits,), fisher, lambda z: dist.Binomial(count, logits=z), distribution.batch_shape
    )


@_read.register
def _(distribution: torch.distributions.Poisson) -> Readout:
    rate = distribution.rate
    return _scalar_blocks((rate.log(),), (rate,), lambda z: dist.Poisson(z.exp()), distribution.batch_shape)


@_read.register
def _(distribution: LogPoisson) -> Readout:
    return _scalar_blocks((distribution.log_rate,), (distribution.rate,), LogPoisson, distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.Exponential) -> Readout:
    rate = distribution.rate
    return _scalar_blocks(
        (rate.log(),), (torch.ones_like(rate),), lambda z: dist.Exponential(z.exp()), distribution.batch_shape
    )


@_read.register
def _(distribution: torch.distributions.Categorical) -> Readout:
    logits = distribution.logits
    weight = torch.ones_like(logits[..., 0]).detach()
    return Readout(
        (logits,),
        lambda: (_multinomial_root(torch.softmax(logits, -1)),),
        lambda z: dist.Categorical(logits=z[0]),
        weight,
    )


def _multinomial_root(probs: Tensor) -> Tensor:
    """Return R ``[..., K, K - 1]`` with :math:`R R^T = diag(p) - p p^T`, its Cholesky factor in closed form.

    References
    ----------
    Tanabe and Sagae (1992), An exact Cholesky decomposition and the generalized inverse of the variance-covariance
    matrix of the multinomial distribution, with applications, Journal of the Royal Statistical Society B 54.
    """
    from_here = probs.flip(-1).cumsum(-1).flip(-1).clamp(min=torch.finfo(probs.dtype).tiny)
    after = from_here[..., 1:]
    diagonal = (probs[..., :-1] * after / from_here[..., :-1]).sqrt()
    below = -(probs[..., :, None] / after[..., None, :]) * diagonal[..., None, :]
    own = torch.diag_embed(diagonal)
    padded = torch.cat([own, torch.zeros_like(own[..., :1, :])], -2)
    return padded + below.tril(-1)


@_read.register
def _(distribution: Family) -> Readout:
    z = torch.stack(distribution.parameters, -1)
    has_fisher = type(distribution).fisher is not Family.fisher

    def build(blocks: tuple[Tensor, ...]) -> Distribution:
        return type(distribution)(*blocks[0].unbind(-1))

    def roots() -> tuple[Tensor, ...]:
        information = distribution.fisher()
        return (fisher_root(distribution, z.detach(), build) if information is None else _two_by_two_root(information),)

    return Readout((z,), roots, build, torch.ones_like(z[..., 0]).detach(), closed_form=has_fisher)


def _two_by_two_root(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factor of positive semi-definite matrices ``[..., 2, 2]``; what underflows is zero."""
    first = matrix[..., 0, 0].clamp(min=0.0).sqrt()
    below = torch.where(first > 0, matrix[..., 1, 0] / torch.where(first > 0, first, 1.0), 0.0)
    last = (matrix[..., 1, 1] - below**2).clamp(min=0.0).sqrt()
    rows = (torch.stack([first, torch.zeros_like(first)], -1), torch.stack([below, last], -1))
    return torch.stack(rows, -2)


@_read.register
def _(distribution: RightCensored) -> Readout:
    inner, censored, until = _read(distribution.base_dist), distribution.censored, distribution.until

    def build(blocks: tuple[Tensor, ...]) -> Distribution:
        times: Any = inner.build(blocks)
        return RightCensored(times, censored, until)

    return replace(inner, make_roots=lambda: (_two_by_two_root(distribution.information()),), build=build)


@_read.register
def _(distribution: Weighted) -> Readout:
    inner, weights = _read(distribution.base_dist), distribution.weights
    events = inner.weight.ndim - len(distribution.batch_shape)
    weight = inner.weight * weights.reshape(weights.shape + (1,) * events)
    return replace(inner, build=lambda z: Weighted(inner.build(z), weights), weight=weight)


@_read.register
def _(distribution: Independent) -> Readout:  # type: ignore[type-arg]
    inner = _read(distribution.base_dist)
    num_event_dims = distribution.reinterpreted_batch_ndims
    return replace(inner, build=lambda z: dist.Independent(inner.build(z), num_event_dims, validate_args=False))


@_read.register
def _(distribution: MaskedDistribution) -> Readout:
    inner = _read(distribution.base_dist)
    mask = torch.as_tensor(distribution._mask)
    events = inner.weight.ndim - len(distribution.batch_shape)
    weight = inner.weight * mask.reshape(mask.shape + (1,) * events if mask.ndim else ())
    return replace(inner, build=lambda z: MaskedDistribution(inner.build(z), mask), weight=weight)


@_read.register
def _(distribution: ExpandedDistribution) -> Readout:
    inner = _read(distribution.base_dist)
    shape = distribution.batch_shape + distribution.base_dist.event_shape
    coordinates = tuple(z.expand(shape + z.shape[-1:]) for z in inner.coordinates)

    def roots() -> tuple[Tensor, ...]:
        return tuple(r.expand(shape + r.shape[-2:]) for r in inner.roots)

    return replace(inner, coordinates=coordinates, make_roots=roots, weight=inner.weight.expand(shape))
