"""Distances between groups of pooled draws, for many ways to form the groups."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Distances", "Indices", "Split", "blocks_of_draws", "class_distances", "evenly", "split_distances"]

type Array = NDArray[np.floating]
type Indices = NDArray[np.int64]
type Split = tuple[Indices, Indices]  # rows of the pool in two groups of the same size
type Distances = dict[str, Array]

MAX_NUMBERS = 2**22  # that are sorted together


def evenly(indices: Indices, count: int) -> Indices:
    """Return so many of the indices, evenly spaced.

    Examples
    --------
    >>> evenly(np.arange(9), 3).tolist()
    [0, 4, 8]
    """
    kept: Indices = indices[np.linspace(0, len(indices) - 1, count).round().astype(int)]
    return kept


def blocks_of_draws(chains: Sequence[Indices], count: int) -> list[Indices]:
    """Return at least so many blocks of consecutive draws, as many of each chain, or one draw each of shorter chains.

    Examples
    --------
    >>> [part.tolist() for part in blocks_of_draws([np.arange(4), np.arange(4, 8)], 3)]
    [[0, 1], [2, 3], [4, 5], [6, 7]]
    """
    pieces = -(-count // len(chains))
    return [part for chain in chains for part in np.array_split(chain, min(pieces, len(chain)))]


def split_distances(pool: Array, splits: Sequence[Split], scale: Array) -> Distances:
    """Return the distances of :func:`~bnnzoo.diagnostics.compare_posteriors` between two groups of draws, for each split.

    Parameters
    ----------
    pool : ndarray [M, N, ...] or [M, N, ..., K]
        Draws of the function values, or of the probabilities of K classes.
    splits : sequence of pair of ndarray
        The two groups of each split, of equal size.
    scale : ndarray [N, ...] or [N, ..., K]
        Standard deviations of the reference. With the shape of a draw for real predictions; for classes it is not used, and
        is empty.

    Returns
    -------
    dict of str to ndarray [splits, N, ...]
    """
    wasserstein = _wasserstein(pool, splits)
    if not scale.size:
        return class_distances(pool, splits) | {"wasserstein": 0.5 * wasserstein.sum(-1)}
    found = []
    for (a, b), apart in zip(splits, wasserstein, strict=True):
        one, other = pool[a], pool[b]
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.abs(one.mean(0) - other.mean(0)) / scale
            log_sds = np.abs(np.log(one.std(0) / other.std(0)))
            found.append({"mean_difference": means, "log_sd_ratio": log_sds, "wasserstein": apart / scale})
    return {name: np.stack([each[name] for each in found]) for name in found[0]}


def class_distances(pool: Array, splits: Sequence[Split]) -> Distances:
    """Return the distances ``[splits, N, ...]`` between average class probabilities, of draws ``pool[M, N, ..., K]``."""
    shares = np.zeros((2 * len(splits), len(pool)))
    for row, group in enumerate(group for pair in splits for group in pair):
        shares[row, group] = 1 / len(group)
    rows = pool.reshape(len(pool), -1, pool.shape[-1])
    width = max(1, MAX_NUMBERS // (len(shares) * pool.shape[-1]))
    parts = []
    for start in range(0, rows.shape[1], width):
        some = rows[:, start : start + width]
        averages = (shares @ some.reshape(len(some), -1)).reshape(-1, 2, *some.shape[1:])
        one, other = averages[:, 0], averages[:, 1]
        total_variation = 0.5 * np.abs(one - other).sum(-1)
        differs = (one.argmax(-1) != other.argmax(-1)).astype(float)
        parts.append({"total_variation": total_variation, "disagreement": differs})
    shape = (len(splits), *pool.shape[1:-1])
    return {name: np.concatenate([part[name] for part in parts], 1).reshape(shape) for name in parts[0]}


def _wasserstein(pool: Array, splits: Sequence[Split]) -> Array:
    r"""Return the 1-Wasserstein distance ``[splits, ...]`` between the groups.

    .. math:: W_1 = \int |F_1(v) - F_2(v)| \, dv

    The pool is sorted once for all splits: the distribution functions of the groups differ by a running sum of signs.
    """
    flat = pool.reshape(len(pool), -1)
    width = max(1, MAX_NUMBERS // len(flat))
    parts = []
    for start in range(0, flat.shape[1], width):
        columns = flat[:, start : start + width]
        order = np.argsort(columns, axis=0)
        gaps = np.diff(np.take_along_axis(columns, order, axis=0), axis=0)
        found = np.empty((len(splits), columns.shape[1]))
        for row, (one, other) in enumerate(splits):
            sign = np.zeros(len(columns), dtype=np.int32)
            sign[one], sign[other] = 1, -1
            excess = np.abs(np.cumsum(sign[order], axis=0, dtype=np.int32)[:-1])
            found[row] = np.einsum("ij,ij->j", excess, gaps) / len(one)
        parts.append(found)
    return np.concatenate(parts, axis=1).reshape(len(splits), *pool.shape[1:])
