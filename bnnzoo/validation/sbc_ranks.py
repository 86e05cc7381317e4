"""Ranks of calibration by simulation: the verdict in words, and the ranks of other quantities."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bnnzoo.trees import refuse_no_probability, refuse_other_kind
from bnnzoo.trees.multiple_tests import holm
from bnnzoo.trees.ranks import Array, group_of_ranks, pits_of_tree

__all__ = [
    "group_with_draws",
    "is_close_to_uniform",
    "p_of",
    "sbc_again",
    "sbc_verdict",
]

MEAN_RANK, SPREAD_OF_RANKS = 0.07, 0.25
"""How close to 0.5 the mean rank over L, and to one the ratio of its variance to a uniform one's, have to be for a clear pass.

A shift of the draws by a quarter of a standard deviation moves the mean rank by 0.07, and intervals that are too narrow by a
tenth raise the variance by some 0.2.
"""

SLOPE_OF_RANKS = 0.28
"""By how much the mean rank over L moves when Gaussian draws shift by one standard deviation, to first order."""


def sbc_verdict(tree: xr.DataTree, prob: float = 0.95) -> pd.DataFrame:
    """Return for every test quantity whether its ranks are uniform, and if not, in which way.

    Parameters
    ----------
    tree : DataTree
        From :func:`sbc`.
    prob : float
        Probability with which no quantity of a right method is flagged, however many there are (Holm's correction of
        ArviZ's test of uniformity, ``pot_c``).

    Returns
    -------
    DataFrame
        By quantity: ``mean`` and ``sd`` of the ranks divided by L, 0.5 and 0.289 if uniform, with the standard errors that they
        have then, ``mean_se`` and ``sd_se``; ``coverage``, the share of simulations whose truth lies in the 50% interval, and
        ``coverage_se``; ``p`` of the test; ``uniform``; ``finding``, such as "draws too narrow"; and a ``sentence``, which says
        what was found or, where nothing was, which shift of the draws so many simulations would have shown.

    Raises
    ------
    ValueError
        If the tree has no ranks.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=1)
    >>> ranks = bz.validation.sbc(target.model, bz.Laplace(bz.MAP(num_steps=50)), *target.data, num_simulations=8, progress=False)
    >>> verdict = bz.validation.sbc_verdict(ranks)
    >>> bool(verdict.loc["w[0]", "uniform"])
    True
    >>> verdict.loc["w[0]", "sentence"]
    'Nothing is off with w[0] as far as 8 simulations tell, which would show shifts above 1 standard deviations.'
    """
    refuse_no_probability(prob, "sbc_verdict")
    rows = {}
    for name, pit in pits_of_tree(tree, "sbc_verdict").items():
        number = len(pit)
        rows[name] = {
            "mean": float(pit.mean()),
            "mean_se": float(np.sqrt(1 / 12 / number)),
            "sd": float(pit.std()),
            "sd_se": float(np.sqrt(1 / 60 / number)),
            "coverage": float(np.mean(np.abs(pit - 0.5) < 0.25)),
            "coverage_se": float(np.sqrt(0.25 / number)),
            "p": p_of(pit),
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table["uniform"] = ~holm(table["p"], 1 - prob)
    table["finding"] = [_finding(row, number) for row in table.itertuples()]
    table["sentence"] = [_sentence(row, number) for row in table.itertuples()]
    return table


def sbc_again(tree: xr.DataTree, quantities: Callable[[xr.Dataset, xr.Dataset], xr.Dataset]) -> xr.DataTree:
    """Return the ranks of other test quantities, without new fits.

    Parameters
    ----------
    tree : DataTree
        From :func:`sbc` with ``keep=True``.
    quantities : callable
        ``(values, data) -> Dataset`` of the latent sites' values and of the simulated outcomes. Called once with the truths
        ``[chain, draw, ...]`` and once with the draws ``[chain, draw, sbc_draw, ...]``, and with data ``[chain, draw, ...]``.

    Returns
    -------
    DataTree
        As :func:`sbc`, of these quantities alone.

    Raises
    ------
    ValueError
        If the draws were not kept.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> method = bz.Laplace(bz.MAP(num_steps=50))
    >>> ranks = bz.validation.sbc(target.model, method, *target.data, num_simulations=4, keep=True, progress=False)
    >>> contrast = lambda values, data: (values["w"][..., 0] - values["w"][..., 1]).to_dataset(name="contrast")
    >>> dict(bz.validation.sbc_again(ranks, contrast)["prior_sbc"].sizes)
    {'chain': 1, 'draw': 4}
    """
    refuse_other_kind(tree, xr.DataTree, "tree", "what sbc returned, as in sbc_again(sbc(..., keep=True), quantities)")
    if not callable(quantities):
        raise TypeError(
            f"quantities is a {type(quantities).__name__}; write a function (values, data) -> Dataset of test quantities."
        )
    group = group_with_draws(tree, "sbc_again")
    data = tree["sbc_data"].to_dataset()
    truth, drawn = (quantities(tree[name].to_dataset(), data) for name in ("sbc_truth", "sbc_draws"))
    rng = np.random.default_rng(int(tree.attrs["seed"]))
    below, ties = (drawn < truth).sum("sbc_draw"), (drawn == truth).sum("sbc_draw")
    ranks = {
        name: below[name] + np.floor(rng.uniform(size=ties[name].shape) * (ties[name] + 1)).astype(int)
        for name in below
    }
    found = xr.DataTree.from_dict({group: xr.Dataset(ranks)})
    found.attrs = dict(tree.attrs)
    return found


def group_with_draws(tree: xr.DataTree, asking: str) -> str:
    """Return the name of the group of ranks of a tree that kept its draws, which the function ``asking`` needs.

    Raises
    ------
    ValueError
        If it has none.
    """
    group = group_of_ranks(tree)
    if group is None or "sbc_draws" not in tree.children:
        raise ValueError(
            f"{asking} needs the draws of a calibration, and the tree has none (groups: {', '.join(tree.children) or 'none'}). "
            f"Write sbc(..., keep=True)."
        )
    return group


def p_of(pit: Array) -> float:
    """Return the p-value of ArviZ's test of uniformity."""
    p, _, _ = xr.DataArray(pit, dims="draw").azstats.uniformity_test(dim="draw")
    return float(p)


def is_close_to_uniform(pit: Array) -> bool:
    """Tell whether mean and spread of ranks are known to be close to what they should be, by two standard errors."""
    number = len(pit)
    location, spread = abs(pit.mean() - 0.5), abs(pit.var() * 12 - 1)
    far, wide = location + 2 * np.sqrt(1 / 12 / number), spread + 2 * np.sqrt(0.8 / number)
    return bool(far <= MEAN_RANK and wide <= SPREAD_OF_RANKS)


def _sentence(row: Any, number: int) -> str:
    """Say what was found of a quantity; a shift by 2.8 standard errors of the mean rank is seen four times in five."""
    if row.uniform:
        return (
            f"Nothing is off with {row.Index} as far as {number} simulations tell, which would show shifts above "
            f"{2.8 * row.mean_se / SLOPE_OF_RANKS:.2g} standard deviations."
        )
    share = f"the truth is in the 50% interval in {row.coverage:.0%} of {number} simulations"
    way = row.finding.removeprefix("draws ")
    if way in ("too narrow", "too wide"):
        return f"The method's intervals of {row.Index} are {way}: {share}."
    return f"The method's draws of {row.Index} are {way}: on average {row.mean:.0%} of them lie below the truth, and {share}."


def _finding(row: Any, num_simulations: int) -> str:
    """Say in which way ranks are not uniform: by the larger of two standardised differences."""
    if row.uniform:
        return "none"
    location = (row.mean - 0.5) / np.sqrt(1 / 12 / num_simulations)
    spread = (row.sd**2 - 1 / 12) / np.sqrt(1 / 180 / num_simulations)
    if abs(location) > abs(spread):
        return "draws too low" if location > 0 else "draws too high"
    return "draws too narrow" if spread > 0 else "draws too wide"
