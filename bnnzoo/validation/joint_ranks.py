"""Joint calibration: whether a classifier tells the truths of simulated data sets from the method's draws."""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from bnnzoo.trees import refuse_no_probability, refuse_other_kind
from bnnzoo.trees.ranks import Array
from bnnzoo.validation.sbc_ranks import group_with_draws

__all__ = ["sbc_joint"]

MAX_SCALARS, MAX_COMPONENTS, MAX_TRAINED = 20, 2, 20
"""Scalars that are looked at, evenly spaced; principal components of the data; draws of a simulation that are learnt from."""

NUM_BLOCKS, FEWEST = 5, 20
"""Parts of the simulations, each of which is judged by what was learnt from those before; fewest simulations."""


class _Feature(NamedTuple):
    """What a classifier looks at: one scalar, the product of two, or of one and a principal component of the data."""

    first: str
    second: str = ""
    of_data: bool = False


def sbc_joint(tree: xr.DataTree, prob: float = 0.95) -> pd.DataFrame:
    r"""Ask whether truths and draws are alike jointly, which ranks of one quantity at a time do not tell.

    A method may have every margin right and all correlations wrong. Given the data, a truth and the L draws of a right method are
    exchangeable, so that no classifier ranks the truth higher than a draw. A logistic regression learns to tell them apart from
    the simulations so far, by their standardised values :math:`z`, by squares and products :math:`z_i z_j`, and by products with
    the first two principal components of the data; the rank of its log odds at the truth of the next simulations is uniform if
    the method is right, however well or badly it has learnt.

    Parameters
    ----------
    tree : DataTree
        From :func:`sbc` with ``keep=True``. Of network weights nothing is asked.
    prob : float
        Probability with which a right method passes.

    Returns
    -------
    DataFrame
        With one row, ``joint``, and columns as of :func:`sbc_verdict`: ``mean``, the share of draws whose log odds lie below the
        truth's, 0.5 if they are alike, and ``mean_se``; ``p``, of a larger share; ``uniform``; ``finding``, by the feature that
        differs most; and a ``sentence``.

    Raises
    ------
    ValueError
        If the draws were not kept, or there are fewer than 20 simulations.

    References
    ----------
    Yao and Domke (2023), Discriminative calibration: check Bayesian computation from simulations and flexible classifier,
    NeurIPS. Lopez-Paz and Oquab (2017), Revisiting classifier two-sample tests, ICLR.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> method = bz.Laplace(bz.MAP(num_steps=50))
    >>> ranks = bz.validation.sbc(target.model, method, *target.data, num_simulations=40, keep=True, progress=False)
    >>> bool(bz.validation.sbc_joint(ranks).loc["joint", "uniform"])
    True
    """
    refuse_other_kind(tree, xr.DataTree, "tree", "what sbc returned, as in sbc_joint(sbc(..., keep=True))")
    refuse_no_probability(prob, "sbc_joint")
    group = group_with_draws(tree, "sbc_joint")
    sites = [name for name in tree["sbc_truth"].data_vars if name in tree[group].data_vars]
    if not sites:
        raise ValueError(
            "sbc_joint tells truths from draws of latent sites that are no network weights, and this model has none. Rank what "
            "the network predicts by sbc_verdict, or quantities of your own by sbc_again."
        )
    points, names = _points(tree, sites)
    number = len(points)
    if number < FEWEST:
        raise ValueError(f"sbc_joint learns from simulations, and {number} are too few: write num_simulations=100.")
    # the first principal components [n, K] of the simulated outcomes, standardised
    data = tree["sbc_data"].to_dataset()
    flat = [array.isel(chain=0).to_numpy().reshape(data.sizes["draw"], -1) for array in data.data_vars.values()]
    values = np.nan_to_num(np.concatenate(flat, 1).astype(float))
    left, sizes, _ = np.linalg.svd(values - values.mean(0), full_matrices=False)
    components = left[:, sizes > 1e-9 * max(sizes[0], 1e-300)][:, :MAX_COMPONENTS] * math.sqrt(len(values))
    features, said = _features(points, names, components)
    shares = _shares(features, np.random.default_rng(int(tree.attrs["seed"])))
    error = math.sqrt(1 / 12 / len(shares))
    p = float(norm.sf((shares.mean() - 0.5) / error))
    finding = _finding(features, said) if p < 1 - prob else "none"
    share = float(shares.mean())
    if finding == "none":
        sentence = f"No classifier that learnt from {number} simulations tells the truths from the draws."
    else:
        sentence = f"A classifier ranks the truth above {share:.0%} of the draws, 50% if they are alike: {finding}."
    row = {
        "mean": float(shares.mean()),
        "mean_se": error,
        "p": p,
        "uniform": finding == "none",
        "finding": finding,
        "sentence": sentence,
    }
    return pd.DataFrame.from_dict({"joint": row}, orient="index")


def _points(tree: xr.DataTree, sites: list[Any]) -> tuple[Array, list[str]]:
    """Return truths and draws ``[n, 1 + L, D]`` standardised by both together, and the names of the scalars."""
    columns, names = [], []
    for site in sites:
        truth, draws = (tree[name].to_dataset()[site].isel(chain=0) for name in ("sbc_truth", "sbc_draws"))
        both = np.concatenate([truth.to_numpy()[:, None], draws.to_numpy()], 1).astype(float)
        for index in np.ndindex(both.shape[2:]):
            columns.append(both[(slice(None), slice(None), *index)])
            names.append(f"{site}{list(index) if index else ''}")
    kept = np.unique(np.linspace(0, len(names) - 1, min(len(names), MAX_SCALARS)).round().astype(int))
    found = np.stack([columns[place] for place in kept], 2)
    spread = found.std(1, keepdims=True)
    return (found - found.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1.0), [names[place] for place in kept]


def _features(points: Array, names: list[str], components: Array) -> tuple[Array, list[_Feature]]:
    """Return what the classifier sees of each point, ``[n, 1 + L, F]``."""
    row, column = np.triu_indices(len(names))
    of_data = points[..., :, None] * components[:, None, None, :]
    values = [points, points[..., row] * points[..., column], of_data.reshape(*points.shape[:2], -1)]
    said = [_Feature(name) for name in names]
    said += [_Feature(names[i], names[j]) for i, j in zip(row, column, strict=True)]
    said += [_Feature(name, of_data=True) for name in names for _ in range(components.shape[1])]
    return np.concatenate(values, 2), said


def _shares(features: Array, rng: np.random.Generator) -> Array:
    """Return for each simulation but those of the first block the share of draws that a classifier ranks below the truth."""
    _, count, size = features.shape
    blocks = np.array_split(np.arange(len(features)), NUM_BLOCKS)
    found = []
    for number, block in enumerate(blocks[1:], start=1):
        seen = features[np.concatenate(blocks[:number])]
        chosen = np.unique(np.linspace(1, count - 1, min(count - 1, MAX_TRAINED)).round().astype(int))
        taken = seen[:, [0, *chosen]].reshape(-1, size)
        scale = taken.std(0)
        scale[scale == 0] = 1.0
        labels = np.tile(np.arange(1 + len(chosen)) == 0, len(seen))
        model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=500).fit(taken / scale, labels)
        odds = (features[block] / scale) @ model.coef_[0]  # log odds [n, 1 + L] of being a truth
        below = (odds[:, 1:] < odds[:, :1]).sum(1) + rng.uniform(size=len(block)) * (
            (odds[:, 1:] == odds[:, :1]).sum(1) + 1
        )
        found.append(below / odds.shape[1])
    return np.concatenate(found)


def _finding(features: Array, said: list[_Feature]) -> str:
    """Say in which way truths and draws differ most, by the feature whose means are farthest apart."""
    apart = features[:, 0] - features[:, 1:].mean(1)
    z = apart.mean(0) / (apart.std(0) / math.sqrt(len(apart)) + 1e-12)
    place = int(np.abs(z).argmax())
    first, second, of_data = said[place]
    more = z[place] > 0
    if of_data:
        return f"draws of {first} do not follow the data as the truths do"
    if not second:
        return f"draws of {first} too {'low' if more else 'high'}"
    if first == second:
        return f"draws of {first} too {'narrow' if more else 'wide'}"
    return f"correlation of {first} and {second} too {'low' if more else 'high'}"
