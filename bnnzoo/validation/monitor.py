"""Monitoring of a model in use: drift of its inputs, calibration and scores, window by window."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import binomtest, ks_2samp, norm

from bnnzoo.calibration import misclassified, nll
from bnnzoo.calibration.draws import predictive_draws, quantiles
from bnnzoo.trees import aligned, first_moment, observations, refuse_parts_of_trees
from bnnzoo.uncertainty import epistemic_variance, predictive_entropy

__all__ = ["monitor"]

type Array = NDArray[np.floating]
type Scoring = Callable[[xr.DataTree], xr.DataArray]

TAIL = 0.95  # quantile of the reference's scores above which a row is unusual
COVERAGE = 0.9
LIKELIHOODS = ("predictions_log_likelihood", "log_likelihood")


def monitor(
    reference: xr.DataTree,
    new: xr.DataTree,
    *,
    score: Scoring | None = None,
    num_windows: int = 10,
    level: float = 0.95,
) -> xr.Dataset:
    """Compare predictions for new rows with those for reference rows, in windows of consecutive new rows.

    Drift is judged without labels, by an out-of-distribution score: how many of the new rows have a score above the 95%
    quantile of the reference, which 5% have if nothing changed, and whether the two distributions of scores are the same.
    Where observations are known, the log score and the calibration of each window are given beside those of the reference.

    Parameters
    ----------
    reference : DataTree
        Predictions of held-out rows from the time of the fit, with observations if scores are to be compared.
    new : DataTree
        Predictions of the same posterior for rows that came later, in the order in which they came.
    score : callable, optional
        From a tree to a score for each row, higher for less usual inputs. Default: the predictive entropy of classes, the
        epistemic variance of real predictions.
    num_windows : int
        Windows have equal sizes, up to one row.
    level : float
        Probability of the intervals: Wilson's for fractions, normal for means.

    Returns
    -------
    Dataset
        By ``window``: ``count``; ``score_median``; ``unusual``, the fraction above the reference's quantile, and
        ``drift_p_value`` of the two-sample Kolmogorov-Smirnov test; with observations ``nll``, and the ``accuracy`` of classes or
        the ``coverage`` of central 90% intervals. Fractions and ``nll`` have ``_low`` and ``_high``, and a value
        ``reference_...`` of all reference rows.

    Raises
    ------
    ValueError
        If there are fewer rows than windows, or a moment that the score needs is missing.

    References
    ----------
    S. Rabanser, S. Günnemann, Z. C. Lipton, Failing loudly: an empirical study of methods for detecting dataset shift,
    NeurIPS 2019.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> trees = [example_tree("classification", num_rows=200, seed=seed) for seed in (0, 1)]
    >>> found = monitor(*trees, num_windows=4)
    >>> found["count"].values, bool((found["unusual_low"] < 0.05).all())
    (array([50, 50, 50, 50]), True)
    """
    refuse_parts_of_trees(new, "new")
    refuse_parts_of_trees(reference, "reference")
    is_classes = first_moment(new, "probs", "mean") == "probs"
    score = score or (predictive_entropy if is_classes else epistemic_variance)
    known, values = _rows(score(reference)), _rows(score(new))
    if not 1 <= num_windows <= len(values):
        raise ValueError(
            f"num_windows={num_windows}, but there are {len(values)} new rows: write a number from 1 to that."
        )
    windows = np.array_split(np.arange(len(values)), num_windows)
    unusual = values > np.quantile(known, TAIL)
    found = {
        "count": np.array([len(rows) for rows in windows]),
        "score_median": np.array([np.median(values[rows]) for rows in windows]),
        "drift_p_value": np.array([ks_2samp(known, values[rows]).pvalue for rows in windows]),
        **_fractions("unusual", unusual, windows, level),
    }
    constants = {"reference_unusual": 1 - TAIL, "reference_score_median": float(np.median(known))}
    outcome = ("accuracy", _is_right) if is_classes else ("coverage", _is_covered)
    if _has_observations(new):
        name, function = outcome
        found |= _fractions(name, function(new), windows, level)
        constants |= {f"reference_{name}": float(function(reference).mean())} if _has_observations(reference) else {}
    if any(group in new.children for group in LIKELIHOODS):
        found |= _means("nll", _rows(nll(new)), windows, level)
        if any(group in reference.children for group in LIKELIHOODS):
            constants["reference_nll"] = float(_rows(nll(reference)).mean())
    return xr.Dataset({name: ("window", part) for name, part in found.items()}).assign(constants)


def _rows(values: xr.DataArray) -> Array:
    """Return one value for each row: the mean over outputs, if there are several."""
    others = [dim for dim in values.dims if dim != "obs_id"]
    return np.asarray(values.mean(others).to_numpy(), dtype=float)


def _has_observations(tree: xr.DataTree) -> bool:
    return "predictions_observed_data" in tree.children or (
        "observed_data" in tree.children and "predictions" not in tree.children
    )


def _is_right(tree: xr.DataTree) -> NDArray[np.bool_]:
    right: NDArray[np.bool_] = ~misclassified(tree).to_numpy()
    return right


def _is_covered(tree: xr.DataTree) -> NDArray[np.bool_]:
    """Return whether the central interval of each row contains the observation, of all outputs."""
    draws = predictive_draws(tree, "monitor", at_least=2)
    low, high = quantiles(draws, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    y = aligned(observations(tree), low)
    inside = (low <= y) & (y <= high)
    covered: NDArray[np.bool_] = inside.all([dim for dim in inside.dims if dim != "obs_id"]).to_numpy()
    return covered


def _fractions(name: str, hits: NDArray[np.bool_], windows: list[NDArray[np.intp]], level: float) -> dict[str, Array]:
    tests = [binomtest(int(hits[rows].sum()), len(rows)).proportion_ci(level, method="wilson") for rows in windows]
    middle = np.array([hits[rows].mean() for rows in windows])
    return {
        name: middle,
        f"{name}_low": np.array([t.low for t in tests]),
        f"{name}_high": np.array([t.high for t in tests]),
    }


def _means(name: str, values: Array, windows: list[NDArray[np.intp]], level: float) -> dict[str, Array]:
    """Return means and normal intervals, NaN for windows of a single row."""
    middle = np.array([values[rows].mean() for rows in windows])
    spread = np.array([values[rows].std(ddof=1) if len(rows) > 1 else np.nan for rows in windows])
    half = norm.ppf((1 + level) / 2) * spread / np.sqrt([len(rows) for rows in windows])
    return {name: middle, f"{name}_low": middle - half, f"{name}_high": middle + half}
