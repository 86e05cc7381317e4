"""Error and out-of-distribution detection: areas under curves, with bootstrap intervals."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.trees import (
    LABELLED_PROBS,
    Labelled,
    aligned,
    average_probs,
    class_indices,
    observations,
    refuse_no_count,
    refuse_other_kind,
)

__all__ = ["aupr", "auroc", "bootstrap", "fpr_at_95", "misclassified", "versus"]

type Array = NDArray[np.floating]
type Statistic = Callable[[NDArray[np.bool_], Array], float]


@with_shared_entries(LABELLED_PROBS)
def misclassified(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    """Whether the most probable class of each observation, averaged over draws, is wrong, ``[obs_id]``.

    Returns
    -------
    DataArray [obs_id]

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.25, 0.75], [0.25, 0.75]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> misclassified(probs, xr.DataArray([1, 0], dims="obs_id")).values
    array([False,  True])
    """
    probs = average_probs(data)
    labels = class_indices(observations(data, y), probs)
    return labels.copy(data=probs.to_numpy().argmax(-1) != labels.to_numpy()).rename("misclassified")


def versus(inside: xr.DataArray, outside: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Join the scores of in-distribution and out-of-distribution data, with a target that says which is which.

    Parameters
    ----------
    inside, outside : DataArray [obs_id]
        Scores of both data sets.

    Returns
    -------
    score, target : DataArray [obs_id]
        For :func:`auroc`, :func:`aupr` and :func:`fpr_at_95`; the target is True for ``outside``.

    Examples
    --------
    >>> score, target = versus(xr.DataArray([0.1], dims="obs_id"), xr.DataArray([0.9], dims="obs_id"))
    >>> score.values, target.values
    (array([0.1, 0.9]), array([False,  True]))
    """
    for argument, value in (("inside", inside), ("outside", outside)):
        refuse_other_kind(
            value, xr.DataArray, argument, "a DataArray with one score for each row, as measures return it"
        )
    parts = [np.asarray(part.to_numpy()).ravel() for part in (inside, outside)]
    target = np.repeat([False, True], [len(part) for part in parts])
    return xr.DataArray(np.concatenate(parts), dims="obs_id"), xr.DataArray(target, dims="obs_id")


def auroc(
    score: xr.DataArray, target: xr.DataArray, *, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> xr.Dataset:
    """Area under the ROC curve: the probability that a positive observation scores above a negative one.

    Parameters
    ----------
    score : DataArray [obs_id]
        An uncertainty; larger values should be positive.
    target : DataArray [obs_id]
        True for positive observations: misclassified, or out of distribution.
    num_resamples : int
        Number of bootstrap resamples; positive and negative observations are resampled separately.
    level : float
        Probability of the interval.
    seed : int

    Returns
    -------
    Dataset
        ``value``, and ``low`` and ``high``, the percentile interval. 0.5 is chance.

    Raises
    ------
    ValueError
        If there are no positive or no negative observations, lengths differ, or a score is not finite.

    References
    ----------
    J. A. Hanley, B. J. McNeil, The meaning and use of the area under a ROC curve, Radiology, 1982.

    Examples
    --------
    >>> score = xr.DataArray([0.1, 0.2, 0.9], dims="obs_id")
    >>> float(auroc(score, score > 0.5)["value"])
    1.0
    """
    return bootstrap(_auroc, score, target, num_resamples=num_resamples, level=level, seed=seed)


def aupr(
    score: xr.DataArray, target: xr.DataArray, *, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> xr.Dataset:
    """Area under the precision-recall curve (average precision) of the positive observations.

    Parameters
    ----------
    score, target, num_resamples, level, seed
        As for :func:`auroc`.

    Returns
    -------
    Dataset
        ``value``, ``low`` and ``high``. Chance is the fraction of positive observations.

    Raises
    ------
    ValueError
        If there are no positive or no negative observations, lengths differ, or a score is not finite.

    References
    ----------
    J. Davis, M. Goadrich, The relationship between precision-recall and ROC curves, ICML 2006.

    Examples
    --------
    >>> score = xr.DataArray([0.1, 0.2, 0.9], dims="obs_id")
    >>> float(aupr(score, score > 0.5)["value"])
    1.0
    """
    return bootstrap(_aupr, score, target, num_resamples=num_resamples, level=level, seed=seed)


def fpr_at_95(
    score: xr.DataArray, target: xr.DataArray, *, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> xr.Dataset:
    """False positive rate at the threshold with a true positive rate of at least 95%.

    Parameters
    ----------
    score, target, num_resamples, level, seed
        As for :func:`auroc`.

    Returns
    -------
    Dataset
        ``value``, ``low`` and ``high``; smaller is better.

    Raises
    ------
    ValueError
        If there are no positive or no negative observations, lengths differ, or a score is not finite.

    References
    ----------
    S. Liang, Y. Li, R. Srikant, Enhancing the reliability of out-of-distribution image detection, ICLR 2018.

    Examples
    --------
    >>> score = xr.DataArray([0.1, 0.2, 0.9], dims="obs_id")
    >>> float(fpr_at_95(score, score > 0.5)["value"])
    0.0
    """
    return bootstrap(_fpr_at_95, score, target, num_resamples=num_resamples, level=level, seed=seed)


def bootstrap(
    statistic: Statistic,
    score: xr.DataArray,
    target: xr.DataArray,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> xr.Dataset:
    """Return a statistic of scores and targets with its percentile bootstrap interval, stratified by target.

    Parameters
    ----------
    statistic : callable
        ``(target[n], score[n]) -> float``.
    score, target : DataArray [obs_id]
    num_resamples : int
    level : float
    seed : int

    Returns
    -------
    Dataset
        ``value``, ``low`` and ``high``.

    References
    ----------
    B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 1993.

    Examples
    --------
    >>> score = xr.DataArray([0.1, 0.2, 0.9], dims="obs_id")
    >>> float(bootstrap(lambda target, score: score[target].mean(), score, score > 0.5)["value"])
    0.9
    """
    values, positive = _checked(score, target, num_resamples, level)
    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    found = np.empty(num_resamples)
    for i in range(num_resamples):
        rows = np.concatenate([rng.choice(group, len(group)) for group in groups])
        found[i] = statistic(positive[rows], values[rows])
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return xr.Dataset({"value": statistic(positive, values), "low": float(low), "high": float(high)})


def _checked(
    score: xr.DataArray, target: xr.DataArray, num_resamples: int, level: float
) -> tuple[Array, NDArray[np.bool_]]:
    refuse_no_count("num_resamples", num_resamples)
    target = aligned(target, score, "target", "the scores", apart_from=())
    values, positive = score.to_numpy().ravel(), target.to_numpy().ravel().astype(bool)
    if not np.isfinite(values).all():
        raise ValueError(
            f"Scores must be finite, but that of observation {int(np.argmin(np.isfinite(values)))} is not."
        )
    if positive.all() or not positive.any():
        kind = "positive (True)" if not positive.any() else "negative (False)"
        raise ValueError(f"No observation has a {kind} target, so there is nothing to detect.")
    if not 0 < level < 1:
        raise ValueError(f"level={level}: write a number between 0 and 1.")
    return values, positive


def _auroc(target: NDArray[np.bool_], score: Array) -> float:
    return float(roc_auc_score(target, score))


def _aupr(target: NDArray[np.bool_], score: Array) -> float:
    return float(average_precision_score(target, score))


def _fpr_at_95(target: NDArray[np.bool_], score: Array) -> float:
    false_positive, true_positive, _ = roc_curve(target, score, drop_intermediate=False)
    return float(false_positive[np.argmax(true_positive >= 0.95)])
