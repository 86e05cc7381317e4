"""Evidence beyond a reference on draws held against it: observations, importance weights, calibration."""

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import binomtest

from bnnzoo.diagnostics.loo import loo
from bnnzoo.diagnostics.pareto_smoothing import psis
from bnnzoo.trees import SAMPLE_DIMS, aligned, refuse_other_kind

__all__ = ["Observations", "evidence", "of_calibration", "of_weights"]

MIN_DRAWS = 100
MIN_ELPD, ERRORS = 4.0, 3.0
"""Smallest difference of leave-one-out log densities that is said, in nats, and in standard errors."""
LEVEL, MIN_SHARE, MAX_P = 0.9, 0.03, 0.001
"""Of intervals; smallest difference of their coverages that is said; p-value of rows that only one of two covers."""
EXTREME, USUAL, APART = 0.005, 0.05, 0.25
"""Posterior predictive p-values that count against draws, that the reference may have, and how far apart the two must be."""
MOST_NUMBERS = 20_000_000
"""Draws times rows up to which a tree is read."""
MOST_QUANTITIES = 3
"""Of simulation-based calibration that are named."""
TRAINING, NEW = ("posterior_predictive", "observed_data"), ("predictions", "predictions_observed_data")

type Array = NDArray[np.floating[Any]]


class _Replicates(NamedTuple):
    """Replicates ``[S, N]`` and observations ``[N]`` of real numbers or counts."""

    draws: Array
    y: Array


class Observations:
    """What a tree holds of observations, read when it is first asked for: a reference is compared with several methods.

    Parameters
    ----------
    tree : DataTree
    """

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    @cached_property
    def left_out(self) -> Array | None:
        """Log density of each observation given the others; None where it is not known, or cannot be trusted."""
        if "log_likelihood" not in self._tree.children:
            return None
        if sum(each.size for each in self._tree["log_likelihood"].data_vars.values()) > MOST_NUMBERS:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of weights that cannot be trusted: these are left out
            try:
                found = loo(self._tree)
            except ValueError:  # of ensembles, and of draws whose density is not known
                return None
        if not bool((found.pareto_k <= found.good_k).all()) or found.p < 0:
            return None
        return np.asarray(found.elpd_i.to_numpy(), dtype=float).ravel()

    @cached_property
    def new(self) -> _Replicates | None:
        """Replicates of predicted rows, or else of those of the fit."""
        return _replicates(self._tree, (NEW, TRAINING))

    @cached_property
    def fitted(self) -> _Replicates | None:
        """Replicates of the rows of the fit, or else of predicted ones."""
        return _replicates(self._tree, (TRAINING, NEW))


def evidence(tree: xr.DataTree, reference: str, base: Observations) -> tuple[str, ...]:
    """Return what observations hold for or against draws, compared with those of a reference; nothing if the two are alike.

    Leave-one-out log densities are compared if all importance weights can be trusted, and a difference is said from four nats and
    three standard errors on (Sivula, Magnusson, Matamoros and Vehtari 2020); coverage of 90% intervals by McNemar's exact
    test, from three in a hundred on; mean, standard deviation, extremes and zeros of replicates if their posterior
    predictive p-value is below 0.005 on one side, where that of the reference is unremarkable.

    Parameters
    ----------
    tree : DataTree
        Of the method. What one of the two lacks, or where rows differ, is not compared.
    reference : str
        What the reference is called.
    base : Observations
        Of the reference.

    Returns
    -------
    tuple of str
        Sentences.

    References
    ----------
    Sivula, Magnusson, Matamoros and Vehtari (2020), Uncertainty in Bayesian leave-one-out cross-validation based model
    comparison, arXiv:2008.10296.
    """
    own = Observations(tree)
    found = []
    if own.left_out is not None and base.left_out is not None and own.left_out.shape == base.left_out.shape:
        gaps = own.left_out - base.left_out
        gap, error = float(gaps.sum()), float(gaps.std(ddof=1) * np.sqrt(gaps.size))
        if not (abs(gap) < MIN_ELPD or abs(gap) < ERRORS * error):
            found.append(
                f"Its leave-one-out log density is {'higher' if gap > 0 else 'lower'} than under {reference} by {abs(gap):.1f} "
                f"(standard error {error:.1f}, {gaps.size} observations)."
            )
    for compare, mine, theirs in (
        (_of_coverage, own.new, base.new),
        (_of_replicates, own.fitted, base.fitted),
    ):
        if mine is not None and theirs is not None and np.array_equal(mine.y, theirs.y):
            found.append(compare(mine, reference, theirs))
    return tuple(sentence for sentence in found if sentence)


def _replicates(tree: xr.DataTree, groups: tuple[tuple[str, str], ...]) -> _Replicates | None:
    """Return replicates of the first data that a tree has; None of classes, of several outcomes, and of too few draws."""
    for group, observed in groups:
        if not {group, observed} <= {*tree.children}:
            continue
        replicated, seen = tree[group].to_dataset(), tree[observed].to_dataset()
        names = [name for name in replicated.data_vars if name in seen.data_vars]
        if len(names) != 1 or ("conditional" in tree.children and "probs" in tree["conditional"].data_vars):
            return None
        values = replicated[names[0]]
        count = values.sizes.get("chain", 1) * values.sizes.get("draw", 1)
        if not {*SAMPLE_DIMS} <= {*values.dims} or count < MIN_DRAWS or values.size > MOST_NUMBERS:
            return None
        y = aligned(seen[names[0]], values.isel(chain=0, draw=0)).to_numpy()
        draws = values.transpose(*SAMPLE_DIMS, ...).to_numpy().reshape(count, -1)
        if not (np.isfinite(y).all() and np.isfinite(draws).all()) or y.size < 2:
            return None
        return _Replicates(draws.astype(float), y.astype(float).ravel())
    return None


def _of_coverage(own: _Replicates, reference: str, base: _Replicates) -> str:
    covered, also = _covered(own), _covered(base)
    lost, won = int((also & ~covered).sum()), int((covered & ~also).sum())
    share, expected = float(covered.mean()), float(also.mean())
    if abs(share - expected) < MIN_SHARE or binomtest(lost, lost + won).pvalue > MAX_P:
        return ""
    return (
        f"Its {100 * LEVEL:.0f}% intervals hold {100 * share:.0f}% of {len(covered)} observations, those of {reference} "
        f"{100 * expected:.0f}%."
    )


def _covered(replicates: _Replicates) -> NDArray[np.bool_]:
    low, high = np.quantile(replicates.draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    found: NDArray[np.bool_] = (low <= replicates.y) & (replicates.y <= high)
    return found


QUANTITIES: dict[str, Callable[[Array], Array]] = {
    "mean": lambda values: values.mean(-1),
    "standard deviation": lambda values: values.std(-1),
    "smallest value": lambda values: values.min(-1),
    "largest value": lambda values: values.max(-1),
    "share of zeros": lambda values: (values == 0).mean(-1),
}


def _of_replicates(own: _Replicates, reference: str, base: _Replicates) -> str:
    """Say of which quantity replicates differ from the observations most, if those of the reference do not."""
    found = []
    for name, quantity in QUANTITIES.items():
        pairs = [(quantity(each.draws), quantity(each.y)) for each in (own, base)]
        # the probability that replicates are above the observed value, where ties count as halves
        p, expected = (float((drawn > y).mean() + 0.5 * (drawn == y).mean()) for drawn, y in pairs)
        is_extreme, is_usual = min(p, 1 - p) < EXTREME, min(expected, 1 - expected) > USUAL
        if is_extreme and is_usual and abs(p - expected) > APART:
            found.append((abs(p - expected), name, p, expected))
    if not found:
        return ""
    _, name, p, expected = max(found)
    return (
        f"The {name} of its replicates is above that of the observations in {100 * p:.3g}% of draws, under {reference} in "
        f"{100 * expected:.0f}%."
    )


def of_weights(tree: xr.DataTree) -> str:
    """Say if the Pareto k of an approximation's importance weights is too high; empty if not, or if it has no weights."""
    if tree.attrs.get("sampling") != "iid":
        return ""
    try:
        found = psis(tree)
    except ValueError:  # no density, or too few draws
        return ""
    k, limit = float(found["pareto_k"]), float(found["good_k"])
    if k <= limit:
        return ""
    return f"Its importance weights have Pareto k {k:.2f}, above {limit:.2f}: it misses a part of the posterior."


def of_calibration(name: str, table: pd.DataFrame) -> str:
    """Say what simulation-based calibration found of a method.

    Parameters
    ----------
    name : str
        Of the method.
    table : DataFrame
        From :func:`bnnzoo.validation.sbc_verdict`.

    Raises
    ------
    TypeError
        If it is no frame, such as the ranks themselves.
    ValueError
        If it is another frame.
    """
    what = f"calibration[{name!r}]"
    refuse_other_kind(table, pd.DataFrame, what, "a table of bnnzoo.validation.sbc_verdict(ranks)")
    if lacking := {"uniform", "finding", "p"} - {*table.columns}:
        raise ValueError(
            f"{what} has no column {min(lacking)!r}: pass the table of bnnzoo.validation.sbc_verdict(ranks)."
        )
    wrong = table[~table["uniform"].astype(bool)].sort_values("p")
    if not len(wrong):
        return f"Simulation-based calibration finds nothing wrong with it ({_quantities(len(table))})."
    named = [
        f"{row['finding'].removeprefix('draws ')} for {quantity} (p = {row['p']:.2g})"
        for quantity, row in wrong.head(MOST_QUANTITIES).iterrows()
    ]
    left = len(wrong) - len(named)
    more = f", and off for {_quantities(left, 'more ')}" if left else ""
    return f"Over data sets that the model makes, its draws are {', '.join(named)}{more}."


def _quantities(count: int, more: str = "") -> str:
    return f"{count} {more}quantit{'y' if count == 1 else 'ies'}"
