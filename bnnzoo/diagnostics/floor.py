"""The Monte Carlo floor of a comparison: how far two halves of the reference are apart, on average and at most."""

import warnings
from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np

from bnnzoo.diagnostics.split_distances import (
    Array,
    Distances,
    Indices,
    Split,
    blocks_of_draws,
    class_distances,
    evenly,
    split_distances,
)

__all__ = ["LEVEL", "chain_halves", "floor_of", "limit_of"]

MAX_SPLITS = 10  # of the reference's chains into two halves
NUM_RANDOM, NUM_BLOCKS = 100, 20  # random splits into halves, of so many blocks of draws
MAX_ROWS, MAX_COLUMNS = 200, 1000  # evenly spaced, that random splits are compared on; columns are rows times classes
LEVEL = 0.95
LEVELS = {"disagreement": 0.99}  # of halves, which are alike in the few rows that lie at a boundary


def chain_halves(num_chains: int, num_draws: int) -> list[Split]:
    """Return splits of chains, whose draws follow each other, into two halves: of whole chains, or of a single chain's draws."""
    draws = np.arange(num_chains * num_draws).reshape(num_chains, num_draws)
    if num_chains == 1:
        middle = num_draws // 2
        return [(draws[0, :middle], draws[0, middle : 2 * middle])]
    members = range(num_chains - num_chains % 2)
    halves = [half for half in combinations(members, len(members) // 2) if 0 in half]
    return [
        (draws[list(half)].ravel(), draws[[chain for chain in members if chain not in half]].ravel())
        for half in islice(halves, MAX_SPLITS)
    ]


def floor_of(pool: Array, splits: Sequence[Split], count: int, scale: Array) -> Distances:
    """Return the distances ``[N, ...]`` between halves of so many draws each, averaged over splits."""
    thinned = [(evenly(one, count), evenly(other, count)) for one, other in splits]
    return {name: values.mean(0) for name, values in split_distances(pool, thinned, scale).items()}


def limit_of(
    pool: Array, chains: Sequence[Indices], splits: Sequence[Split], count: int, scale: Array
) -> dict[str, float]:
    """Return what a distance, averaged over rows, exceeds in 5% of comparisons of equal distributions.

    It is the 95% quantile of the averages between random halves, made of blocks of consecutive draws: rows that move
    together do not average out, so the quantile is far above the mean for them. It is enlarged if the chains differ by
    more than such halves do, which are too much alike if the blocks are shorter than the autocorrelation.

    Parameters
    ----------
    pool : ndarray [M, N, ...]
        Draws of the reference, and of its replicate if there is one.
    chains : sequence of ndarray
        Rows of the pool in each chain.
    splits : sequence of pair of ndarray
        Halves of whole chains.
    count : int
        Draws in a half; fewer if there are not so many.
    scale : ndarray
        As for :func:`~bnnzoo.diagnostics.split_distances.split_distances`.
    """
    is_class = not scale.size
    most = min(MAX_ROWS, max(1, MAX_COLUMNS // (pool.shape[-1] if is_class else 1)))
    kept = evenly(np.arange(pool.shape[1]), min(most, pool.shape[1]))
    few, own_scale = pool[:, kept], scale if is_class else scale[kept]
    of_chains = [(evenly(one, count), evenly(other, count)) for one, other in splits]
    rng = np.random.default_rng(0)  # the same halves every time
    blocks = blocks_of_draws(chains, NUM_BLOCKS)
    half = len(blocks) // 2
    at_random = []
    for _ in range(NUM_RANDOM):
        order = rng.permutation(len(blocks))
        one, other = (
            np.concatenate([blocks[place] for place in sorted(chosen)])
            for chosen in (order[:half], order[half : 2 * half])
        )
        size = min(count, len(one), len(other))
        at_random.append((evenly(one, size), evenly(other, size)))
    whole, random = (_means(split_distances(few, halves, own_scale)) for halves in (of_chains, at_random))
    if is_class:  # a disagreement is an event of a few rows in thousands
        whole |= _means(class_distances(pool, of_chains))
        random |= _means(class_distances(pool, at_random))
    return {name: _limit(random[name], float(whole[name].mean()), LEVELS.get(name, LEVEL)) for name in random}


def _means(found: Distances) -> Distances:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        return {name: np.nanmean(values.reshape(len(values), -1), axis=1) for name, values in found.items()}


def _limit(random: Array, whole: float, level: float) -> float:
    quantile, usual = float(np.quantile(random, level, method="higher")), float(random.mean())
    return max(quantile * max(1.0, whole / usual), whole) if usual > 0 else max(quantile, whole)
