"""Observations as scores that are standard normal if the model is right: one for where each lies, one for how far out."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from torch import Tensor

from bnnzoo.core.discrete.enumeration import enumerated
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import innermost
from bnnzoo.core.program.surroundings import isolated

__all__ = ["Scores", "scores_of"]

type Array = NDArray[np.floating[Any]]

NUM_DRAWS = 20
"""Draws of the posterior under which the observations are scored."""

MAX_REPLICATES, MIN_REPLICATES, MAX_NUMBERS = 4999, 199, 1_000_000
"""Replicates of each observation under each draw: as many as there is room for, of numbers drawn at a time."""

FEW_DRAWS, FEW_REPLICATES = 8, 99
"""Of models whose discrete latent variables are summed out, which draw one data set at a time."""

MAX_COMPONENTS = 4
"""Components of a vector that are scored, evenly spaced."""


@dataclass(frozen=True)
class Scores:
    r"""One component of an observed site, scored under S draws of the posterior.

    Under a draw :math:`\theta_s` the rank of an observation among m replicates drawn from :math:`p(y_i \mid \theta_s)`, ties
    broken at random, is uniform if the model is right, for any distribution. It is exactly so: the data are as likely together
    with a draw from the posterior as with the parameters behind them (Johnson 2007).

    Attributes
    ----------
    name : str
        Of the site, with the component.
    location : ndarray [S, N]
        Normal scores of the ranks.
    largest : ndarray [S]
        p-value of the largest distance from the mean of its replicates, in their standard deviations.
    ends : ndarray [2, S]
        Shares of data sets from the model whose smallest, and largest, value is above that of the data.
    observed : ndarray [N]
    fitted : ndarray [N]
        Means of replicates, over all draws.
    zeros, zeros_sd : ndarray [S]
        Expected number of zeros, and its standard deviation.
    is_discrete, is_binary : bool
    rows : ndarray [N]
        Rows of the data to which the observations belong.
    num_rows : int
        Of the site, masked ones included.

    References
    ----------
    Johnson (2007), Bayesian model assessment using pivotal quantities, Bayesian Analysis 2. Dunn and Smyth (1996), Randomized
    quantile residuals, Journal of Computational and Graphical Statistics 5.
    """

    name: str
    location: Array
    largest: Array
    ends: Array
    observed: Array
    fitted: Array
    zeros: Array
    zeros_sd: Array
    is_discrete: bool
    is_binary: bool
    rows: NDArray[np.integer[Any]]
    num_rows: int

    @cached_property
    def spread(self) -> Array:
        """Normal scores ``[S, N]`` of the distance from the median, large where an observation lies far out."""
        inner = 2 * ndtr(np.abs(self.location)) - 1
        return np.asarray(ndtri(np.clip(inner, 1e-12, 1 - 1e-12)))

    @property
    def ranks(self) -> Array:
        """Numbers ``[S, N]`` that are uniform on (0, 1)."""
        return np.asarray(ndtr(self.location))


def scores_of(density: LogDensity, theta: Tensor, seed: int) -> list[Scores]:
    """Return the scores of each observed site that has rows, or of which there are several values.

    Parameters
    ----------
    density : LogDensity
        Of the model given its data.
    theta : Tensor [M, P]
        Draws from the posterior.
    seed : int
        Of replicates, and of ranks among equal values.
    """
    count = FEW_DRAWS if _is_summed(density) else NUM_DRAWS
    places = torch.linspace(0, len(theta) - 1, min(count, len(theta))).round().long()
    found: dict[str, list[_Scored]] = {}
    lost: NumericalFailure | None = None
    with isolated(seed, density.device), torch.no_grad():
        for draw in theta[places]:
            try:
                of_draw = list(_of_draw(density, draw))
            except NumericalFailure as error:  # of an approximation, whose other draws tell
                lost = error
                continue
            for name, scored in of_draw:
                found.setdefault(name, []).append(scored)
    if lost is not None and not found:
        raise lost
    return [_joined(name, each) for name, each in found.items()]


@dataclass(frozen=True)
class _Scored:
    """What one draw says of the observations ``[N]`` of a component."""

    location: Array
    largest: float
    ends: tuple[float, float]
    observed: Array
    mean: Array
    zeros: float
    zeros_sd: float
    is_discrete: bool
    rows: NDArray[np.integer[Any]]
    num_rows: int


def _of_draw(density: LogDensity, theta: Tensor) -> Iterator[tuple[str, _Scored]]:
    nodes = density.observed_nodes(theta, *density.data)
    for site in density.observed:
        node = nodes[site]
        value = node["value"]
        if not isinstance(value, Tensor) or value.numel() < 2:
            continue
        if _is_summed(density):
            terms = density.pointwise(theta, *density.data)
            if site not in terms or terms[site].shape[:1] != (len(value),):
                continue  # rows share discrete states: they have no terms of their own, and are not independent
        base = innermost(node["fn"])
        mask = node.get("mask")
        keep = torch.ones_like(value, dtype=torch.bool)
        if isinstance(mask, Tensor):
            keep &= mask.reshape(*mask.shape, *(1,) * (value.ndim - mask.ndim)) if mask.ndim < value.ndim else mask
        keep = keep & ~value.double().isnan() if value.is_floating_point() else keep
        if isinstance(base, dist.MultivariateNormal) and not _is_summed(density):
            if value.ndim > 1 or bool(keep.all()):
                yield site, _whitened(base, value, keep)
            continue
        replicates = _replicates(density, theta, node, site)
        columns, parts, keep = _components(value, replicates, keep, base)
        count = columns.shape[1]
        chosen = np.unique(np.linspace(0, count - 1, min(count, MAX_COMPONENTS)).round().astype(int))
        for k in chosen.tolist():
            if int(keep[:, k].sum()) > 1:
                yield site if count == 1 else f"{site}[{k}]", _ranked(columns[:, k], parts[:, :, k], keep[:, k], base)


def _is_summed(density: LogDensity) -> bool:
    """Tell whether discrete latent variables are summed out of the density."""
    return enumerated(density.model) is not None


def _replicates(density: LogDensity, theta: Tensor, node: Node, site: str) -> Tensor:
    """Return replicates ``[m, N, ...]`` of an observed value, given the others where the model conditions on them."""
    value = node["value"]
    count = max(MIN_REPLICATES, min(MAX_REPLICATES, MAX_NUMBERS // max(value.numel(), 1)))
    if _is_summed(density):
        return torch.stack([density.predictive(theta, *density.data)[site] for _ in range(FEW_REPLICATES)])
    shape = torch.Size([count])
    drawn: Tensor = node["fn"].sample(shape)
    return drawn.expand(count, *value.shape) if drawn.shape[1:] != value.shape else drawn


def _components(value: Tensor, replicates: Tensor, keep: Tensor, base: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return what is scored one by one: values ``[N, K]``, replicates ``[m, N, K]`` and which values are seen ``[N, K]``.

    A class is scored as what it is and is not: a truth value for each class, of which two have one in common.
    """
    if isinstance(base, dist.OneHotCategorical):
        value, replicates, keep = value.argmax(-1), replicates.argmax(-1), keep.any(-1)
    if isinstance(base, dist.OneHotCategorical | dist.Categorical):
        labels = torch.arange(1 if base.probs.shape[-1] == 2 else 0, base.probs.shape[-1])
        flat, drawn = (
            value.reshape(len(value), -1)[:, :1],
            replicates.reshape(*replicates.shape[:1], len(value), -1)[..., :1],
        )
        return (
            (flat == labels).double(),
            (drawn == labels).double(),
            keep.reshape(len(value), -1)[:, :1].expand(-1, len(labels)),
        )
    return (
        value.reshape(len(value), -1),
        replicates.reshape(len(replicates), len(value), -1),
        keep.reshape(len(value), -1),
    )


def _ranked(y: Tensor, replicates: Tensor, seen: Tensor, base: Any) -> _Scored:
    y, replicates = y[seen].double(), replicates[:, seen].double()
    below, ties = (replicates < y).sum(0), (replicates == y).sum(0)
    rank = below + torch.rand(len(y), dtype=torch.float64) * (ties + 1)
    location = torch.special.ndtri(rank / (len(replicates) + 1))
    mean, sd = replicates.mean(0), replicates.std(0).clamp(min=1e-300)
    far = ((y - mean).abs() / sd).max()
    farther = (((replicates - mean).abs() / sd).amax(1) > far).sum()
    zero = (replicates == 0).double().mean(0)
    return _Scored(
        location.numpy(),
        float((farther + float(torch.rand(()))) / (len(replicates) + 1)),
        (_share_above(replicates.amin(1), y.min()), _share_above(replicates.amax(1), y.max())),
        y.numpy(),
        mean.numpy(),
        float(zero.sum()),
        float((zero * (1 - zero)).sum().sqrt()),
        bool(getattr(base.support, "is_discrete", False)),
        torch.arange(len(seen))[seen].numpy(),
        len(seen),
    )


def _share_above(replicates: Tensor, value: Tensor) -> float:
    """Return the share of replicates above a value, a random one of those that equal it."""
    above, ties = int((replicates > value).sum()), int((replicates == value).sum())
    return (above + float(torch.rand(())) * (ties + 1)) / (len(replicates) + 1)


def _whitened(base: dist.MultivariateNormal, value: Tensor, keep: Tensor) -> _Scored:
    """Score joint normal vectors, one or a row each, by what is left of each value given those before it."""
    loc = base.loc.expand(value.shape)
    white = torch.linalg.solve_triangular(base.scale_tril, (value - loc).unsqueeze(-1), upper=False).squeeze(-1)
    rows, width = (len(value), value.shape[-1]) if value.ndim > 1 else (len(value), 1)
    seen = keep.reshape(rows, -1).all(1)
    white, observed, mean = (each.reshape(rows, -1)[seen].flatten().double() for each in (white, value, loc))
    count = white.numel()
    lowest, highest = (torch.special.ndtr(each) for each in (-white.min(), white.max()))
    farthest = 2 * torch.special.ndtr(white.abs().max()) - 1
    return _Scored(
        white.numpy(),
        1 - float(farthest) ** count,
        (float(lowest) ** count, 1 - float(highest) ** count),
        observed.numpy(),
        mean.numpy(),
        0.0,
        0.0,
        False,
        torch.arange(rows)[seen].repeat_interleave(width).numpy(),
        rows,
    )


def _joined(name: str, draws: list[_Scored]) -> Scores:
    first = draws[0]
    levels = np.unique(first.observed)
    return Scores(
        name,
        np.stack([each.location for each in draws]),
        np.array([each.largest for each in draws]),
        np.array([each.ends for each in draws]).T,
        first.observed,
        np.mean([each.mean for each in draws], 0),
        np.array([each.zeros for each in draws]),
        np.array([each.zeros_sd for each in draws]),
        first.is_discrete,
        first.is_discrete and len(levels) <= 2 and set(levels.tolist()) <= {0.0, 1.0},
        first.rows,
        first.num_rows,
    )
