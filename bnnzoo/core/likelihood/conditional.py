"""Moments of p(y | x, theta), read off the distribution of an observed site."""

import math
from functools import singledispatch
from typing import Any

import torch
from pyro.distributions import MaskedMixture, MultivariateStudentT
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Bernoulli,
    Binomial,
    Categorical,
    ComposeTransform,
    Distribution,
    FisherSnedecor,
    Independent,
    MixtureSameFamily,
    Multinomial,
    Normal,
    OneHotCategorical,
    StudentT,
    TransformedDistribution,
)

from bnnzoo.core.likelihood.marginal_sites import Marginal
from bnnzoo.core.likelihood.survival import RightCensored
from bnnzoo.core.likelihood.weighted import Weighted

__all__ = ["moments"]

Moments = dict[str, Tensor]


def moments(distribution: Distribution) -> Moments:
    r"""Moments of a distribution whose batch shape is [B]: the uncertainty about y given the parameters.

    Wrappers (events, expansion, masks) and elementwise transforms of a known distribution are seen through; a mask
    changes the density, not what y would be. Moments without a closed form are left out, except those of elementwise
    transforms of a normal, which a 64-point Gauss-Hermite rule integrates. Nothing here looks at a tensor's value,
    so it works under `torch.func.vmap` and can be traced by ``make_fx``.

    Parameters
    ----------
    distribution : Distribution
        Of torch or Pyro, with batch shape [B] or any other.

    Returns
    -------
    dict[str, Tensor]
        ``"mean"``, ``"variance"`` : [B, \*event]
            Of real or count targets; infinite or NaN where the distribution has none.
        ``"probs"`` : [B, K]
            Of class labels, instead of mean and variance. A Bernoulli has K = 2, in the order 0, 1.
        ``"entropy"`` : [B]
            In nats.

    Examples
    --------
    >>> import torch
    >>> import pyro.distributions as dist
    >>> found = moments(dist.Laplace(torch.zeros(3), 2.0))
    >>> found["variance"]
    tensor([8., 8., 8.])
    >>> moments(dist.Bernoulli(probs=torch.tensor([0.25])))["probs"]
    tensor([[0.7500, 0.2500]])
    """
    return _moments(distribution)


@singledispatch
def _moments(distribution: Distribution) -> Moments:
    shape = distribution.batch_shape + distribution.event_shape
    found = {}
    for name in ("mean", "variance"):
        try:
            found[name] = getattr(distribution, name).expand(shape)
        except (NotImplementedError, AttributeError):  # torch's way to say that it has no closed form
            continue
    return found | _entropy(distribution)


def _entropy(distribution: Distribution) -> Moments:
    try:
        return {"entropy": distribution.entropy().expand(distribution.batch_shape)}
    except NotImplementedError:
        return {}


@_moments.register(Independent)
def _(distribution: Independent[Distribution]) -> Moments:
    found = _moments(distribution.base_dist)
    if "entropy" in found:
        found["entropy"] = _sum_last(found["entropy"], distribution.reinterpreted_batch_ndims)
    return found


@_moments.register(RightCensored)
@_moments.register(Weighted)
def _(distribution: Any) -> Moments:
    return _moments(distribution.base_dist)


@_moments.register(ExpandedDistribution)
@_moments.register(MaskedDistribution)
def _(distribution: Any) -> Moments:
    return _expand(_moments(distribution.base_dist), distribution.base_dist.batch_shape, distribution.batch_shape)


@_moments.register(Categorical)
@_moments.register(OneHotCategorical)
def _(distribution: Categorical | OneHotCategorical) -> Moments:
    return {"probs": distribution.probs} | _entropy(distribution)


@_moments.register
def _(distribution: Bernoulli) -> Moments:
    logits = distribution.logits
    return {"probs": torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], -1)} | _entropy(distribution)


def _without_entropy(distribution: Distribution) -> Moments:
    # torch's entropy of these looks at the values of total_count.
    return {"mean": distribution.mean, "variance": distribution.variance}


_moments.register(Binomial, _without_entropy)
_moments.register(Multinomial, _without_entropy)


@_moments.register
def _(distribution: StudentT) -> Moments:
    # torch's mean and variance index by a mask, which can be neither traced nor batched.
    df, scale, nan = distribution.df, distribution.scale, torch.nan
    mean = torch.where(df > 1, distribution.loc, nan)
    heavy = torch.where(df > 1, torch.inf, nan)
    variance = torch.where(df > 2, scale**2 * df / torch.where(df > 2, df - 2, 1.0), heavy)
    return {"mean": mean, "variance": variance} | _entropy(distribution)


@_moments.register(MultivariateStudentT)
def _(distribution: Any) -> Moments:
    # As for Student-t.
    df, nan = distribution.df[..., None], torch.nan
    mean = torch.where(df > 1, distribution.loc, nan)
    heavy = torch.where(df > 1, torch.inf, nan)
    spread = distribution.scale_tril.pow(2).sum(-1)
    return {"mean": mean, "variance": torch.where(df > 2, spread * df / torch.where(df > 2, df - 2, 1.0), heavy)}


@_moments.register
def _(distribution: FisherSnedecor) -> Moments:
    # As for Student-t. Its entropy is not in torch.
    df1, df2, nan = distribution.df1, distribution.df2, torch.nan
    mean = torch.where(df2 > 2, df2 / (df2 - 2), nan)
    ratio = (df1 + df2 - 2) / (df1 * (df2 - 4))
    return {"mean": mean, "variance": torch.where(df2 > 4, 2 * mean**2 * ratio, nan)}


@_moments.register
def _(distribution: MixtureSameFamily) -> Moments:
    parts = _moments(distribution.component_distribution)
    weights = distribution.mixture_distribution.probs
    if "probs" in parts:
        probs = (weights[..., None] * parts["probs"]).sum(-2)
        return {"probs": probs} | _entropy(Categorical(probs=probs, validate_args=False))
    weights = weights.reshape(weights.shape + (1,) * len(distribution.event_shape))
    across = -1 - len(distribution.event_shape)
    mean = (weights * parts["mean"]).sum(across)
    spread = (parts["mean"] - mean.unsqueeze(across)) ** 2
    return {"mean": mean, "variance": (weights * (parts["variance"] + spread)).sum(across)}


@_moments.register(Marginal)
def _(distribution: Any) -> Moments:
    found: Moments = distribution.moments()
    return found


@_moments.register
def _(distribution: torch.distributions.VonMises) -> Moments:
    r"""Return the variance of the angle about its mean direction, :math:`E[(y - \mu)^2]` with differences in :math:`(-\pi, \pi]`.

    Torch's is the circular one, :math:`1 - I_1(\kappa) / I_0(\kappa)`, which is no part of a sum of variances.
    """
    mean, concentration = torch.broadcast_tensors(distribution.loc, distribution.concentration)
    width = (12 / concentration.sqrt()).clamp(max=math.pi)  # beyond it lies less than can be told from nothing
    angles = width[..., None] * torch.linspace(-1, 1, 401, dtype=mean.dtype, device=mean.device)
    weights = (concentration[..., None] * (angles.cos() - 1)).exp()
    return {"mean": mean, "variance": torch.trapezoid(weights * angles**2) / torch.trapezoid(weights)}


@_moments.register(MaskedMixture)
def _(distribution: Any) -> Moments:
    first, second = _moments(distribution.component0), _moments(distribution.component1)
    shape = distribution.batch_shape
    mask = distribution.mask.expand(shape)
    extra = {name: (1,) * (value.ndim - len(shape)) for name, value in first.items()}
    return {
        name: torch.where(mask.reshape(shape + extra[name]), second[name], first[name])
        for name in first.keys() & second.keys()
    }


@_moments.register
def _(distribution: TransformedDistribution) -> Moments:
    if type(distribution).mean is not Distribution.mean:  # a family of its own, such as LogNormal
        return _generic(distribution)
    transforms = ComposeTransform(distribution.transforms)
    if isinstance(distribution.base_dist, Independent):
        base, extra = distribution.base_dist.base_dist, distribution.base_dist.reinterpreted_batch_ndims
    else:
        base, extra = distribution.base_dist, 0
    if transforms.domain.event_dim or transforms.codomain.event_dim or not transforms.bijective:
        return {}
    if all(isinstance(part, AffineTransform) for part in distribution.transforms):
        return _affine(_moments(base), transforms, extra)
    if isinstance(base, Normal):
        points, weights = _POINTS.to(base.loc), _WEIGHTS.to(base.loc)
        z = base.loc[..., None] + base.scale[..., None] * points
        y = transforms(z)
        mean = (weights * y).sum(-1)
        variance = (weights * (y - mean[..., None]) ** 2).sum(-1)
        log_slope = (weights * transforms.log_abs_det_jacobian(z, y)).sum(-1)
        return {"mean": mean, "variance": variance, "entropy": _sum_last(base.entropy() + log_slope, extra)}
    return {}


_generic = _moments.dispatch(object)


def _affine(base: Moments, transform: Any, extra: int) -> Moments:
    if "mean" not in base:
        return {}
    mean = transform(base["mean"])
    log_slope = transform.log_abs_det_jacobian(base["mean"], mean).expand(mean.shape)
    found = {"mean": mean, "variance": base["variance"] * torch.exp(2 * log_slope)}
    if "entropy" in base and base["entropy"].shape == mean.shape:
        found["entropy"] = _sum_last(base["entropy"] + log_slope, extra)
    return found


def _hermite_rule(num_points: int) -> tuple[Tensor, Tensor]:
    """Points and weights for the expectation over a standard normal (Golub and Welsch 1969)."""
    off = torch.arange(1, num_points, dtype=torch.float64).sqrt()
    points, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return points, vectors[0] ** 2


_POINTS, _WEIGHTS = _hermite_rule(64)


def _sum_last(values: Tensor, num_dims: int) -> Tensor:
    return values.sum(tuple(range(-num_dims, 0))) if num_dims else values


def _expand(found: Moments, old: tuple[int, ...], new: tuple[int, ...]) -> Moments:
    return {name: value.expand(tuple(new) + value.shape[len(old) :]) for name, value in found.items()}
