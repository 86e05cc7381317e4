"""Differences of scores, with the power to find them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.utils import ELPDData
from numpy.typing import ArrayLike, NDArray

from bnnzoo.diagnostics.loo import sum_by_row
from bnnzoo.trees import log_mean_exp, refuse_other_kind
from bnnzoo.trees.power import PairedComparison

__all__ = ["compare_scores"]

type Array = NDArray[np.floating[Any]]

OF_NEW = "predictions_log_likelihood"


def compare_scores(
    scores: Mapping[str, xr.DataTree | ELPDData | ArrayLike],
    reference: str | None = None,
    *,
    folds: ArrayLike | None = None,
    horizon: int = 1,
    splits: tuple[int, int] | None = None,
) -> pd.DataFrame:
    r"""Return the mean differences of methods' scores from a reference, and how many rows or splits it takes to find them.

    A difference is called clear from two standard errors on, for folds and splits from the critical value of a t test at the 5%
    level. ``detectable`` is the smallest true difference that would be clear in 80% of comparisons like this one, and
    ``num_needed`` what it takes for a true difference of the size found.

    Standard errors of rows are given the fits: they hold for other test rows, and not for other training data. Where the rows of
    a fold share a fit that has noise of its own, they are too small; ``folds=`` takes

    .. math:: \mathrm{se} = \sqrt{\left(\frac{1}{K} + \frac{1}{K - 1}\right) s_K^2}

    from the variance of the means over K folds in their place. No estimate is unbiased for all methods (Bengio and Grandvalet
    2004). ``splits=`` does the same for random splits, with the number of test over training rows as second term.

    Parameters
    ----------
    scores : mapping of str to DataTree, ELPDData or array_like [N]
        Of each method: results of :func:`loo`, :func:`bnnzoo.validation.kfold`, :func:`bnnzoo.validation.reloo` or
        :func:`bnnzoo.validation.leave_future_out`; trees of :func:`bnnzoo.predict` with held-out observations; or scores by row,
        the larger the better. All of the same rows.
    reference : str, optional
        Name of the method to compare with. Default: the one with the highest mean.
    folds : array_like [N], optional
        Fold of each row, as passed to :func:`bnnzoo.validation.kfold`.
    horizon : int
        Steps of the forecasts of :func:`bnnzoo.validation.leave_future_out`, which overlap if there are several.
    splits : tuple of int, optional
        Number of training and of test rows of random splits. Scores are then arrays ``[J]``, means over the test part of each.

    Returns
    -------
    DataFrame
        By method, the best first and the reference left out: ``difference`` and ``se``, by observation; ``p_worse``, the
        probability that the method is the worse one; ``detectable``; ``num_needed``, of observations or splits, infinite where no
        number of splits is enough; ``sentence``. ``attrs["reference"]`` is the reference.

    Raises
    ------
    ValueError
        If there are fewer than two methods, their rows differ, the folds are not theirs, a score is not finite, or a number is
        out of range.
    TypeError
        If scores are something else.

    References
    ----------
    Card, Henderson, Khandelwal, Jia, Mahowald and Jurafsky (2020), With little power comes great responsibility, EMNLP. Nadeau
    and Bengio (2003), Inference for the generalization error, Machine Learning 52. Bengio and Grandvalet (2004), No unbiased
    estimator of the variance of k-fold cross-validation, JMLR 5. Diebold and Mariano (1995), Comparing predictive accuracy,
    Journal of Business & Economic Statistics 13. Zhan, Hu, Wang, Liu and He (2026), Unstable rankings in Bayesian deep learning
    evaluation, arXiv:2604.23102.

    Examples
    --------
    >>> scores = {"nuts": np.zeros(200), "mfvi": np.tile([-0.23, 0.19], 100)}
    >>> found = compare_scores(scores, "nuts").loc["mfvi"]
    >>> found["sentence"].split("; ")[0]
    'mfvi compared with nuts: no clear difference (-0.020, standard error 0.015'
    >>> found["sentence"].split("; ")[1]
    '200 observations show differences from 0.042 on, and one of this size takes about 900).'
    """
    _refuse_bad_numbers(horizon, splits)
    refuse_other_kind(scores, Mapping, "scores", 'scores by name, as in {"nuts": loo(train), "mfvi": loo(other)}')
    rows = {name: _rows(name, each, splits) for name, each in scores.items()}
    if len(rows) < 2:
        raise ValueError(f"compare_scores compares two methods or more, and scores holds {', '.join(rows) or 'none'}.")
    if reference is None:
        reference = max(rows, key=lambda name: float(rows[name].mean()))
    elif reference not in rows:
        raise ValueError(f"The reference {reference!r} is not one of the scores ({', '.join(rows)}).")
    base, unit = rows[reference], "observation" if splits is None else "split"
    for name, each in rows.items():
        if each.shape != base.shape:
            raise ValueError(
                f"scores[{name!r}] is of {len(each)} {unit}s and scores[{reference!r}] of {len(base)}: score the same ones."
            )
        if len(bad := np.flatnonzero(~np.isfinite(each))):
            raise ValueError(
                f"scores[{name!r}] is {each[bad[0]]} at {unit} {bad[0]}: a difference needs finite log densities; leave "
                "that one out for every method."
            )
    if splits is not None and (folds is not None or horizon > 1):
        raise ValueError("splits= is for scores by split, and folds= and horizon= for scores by row: give one of them.")
    labels = _labels(folds, len(base))
    found = {name: _compared(each - base, labels, horizon, splits) for name, each in rows.items() if name != reference}
    ranked = sorted(found.items(), key=lambda item: -item[1].difference)
    table = pd.DataFrame(
        {
            "difference": [each.difference for _, each in ranked],
            "se": [each.standard_error for _, each in ranked],
            "p_worse": [each.probability_worse for _, each in ranked],
            "detectable": [each.detectable for _, each in ranked],
            "num_needed": [each.num_needed for _, each in ranked],
            "sentence": [
                f"{name} compared with {reference}: {each.verdict()} ({each.weighed()})." for name, each in ranked
            ],
        },
        index=pd.Index([name for name, _ in ranked], name="method"),
    )
    table.attrs["reference"] = reference
    return table


def _compared(
    gaps: Array, labels: NDArray[Any] | None, horizon: int, splits: tuple[int, int] | None
) -> PairedComparison:
    if splits is not None:
        num_train, num_test = splits
        return PairedComparison.of_splits(gaps, num_test / num_train)
    return (
        PairedComparison.of_rows(gaps, lags=horizon - 1) if labels is None else PairedComparison.of_folds(gaps, labels)
    )


def _refuse_bad_numbers(horizon: int, splits: tuple[int, int] | None) -> None:
    if not horizon >= 1:
        raise ValueError(f"horizon={horizon}; write the number of steps of a forecast, 1 or more.")
    if splits is not None and not (len(splits) == 2 and min(splits) > 0):
        raise ValueError(
            f"splits={splits}; write how many rows are trained on and how many tested, as in splits=(90, 10)."
        )


def _labels(folds: ArrayLike | None, num_rows: int) -> NDArray[Any] | None:
    """Return the fold of each row."""
    if folds is None:
        return None
    labels = np.asarray(folds)
    if labels.shape != (num_rows,):
        raise ValueError(f"folds has shape {labels.shape}; write one entry for each of the {num_rows} observations.")
    if len(np.unique(labels)) < 2:
        raise ValueError("folds has the same entry for every observation; write the folds that were left out in turn.")
    return labels


def _rows(name: str, scores: object, splits: tuple[int, int] | None) -> Array:
    """Return scores ``[N]`` by row, or by split."""
    if isinstance(scores, ELPDData):
        return np.asarray(scores.elpd_i, dtype=float).ravel()
    if isinstance(scores, xr.DataTree):
        if OF_NEW not in scores.children:
            raise ValueError(
                f"scores[{name!r}] has no group {OF_NEW!r}: pass bnnzoo.predict(posterior, x_test, y_test), or "
                "bnnzoo.diagnostics.loo of the training data."
            )
        first, *others = [sum_by_row(site) for site in scores[OF_NEW].to_dataset().data_vars.values()]
        total: xr.DataArray = sum(others, first)
        return log_mean_exp(total).to_numpy().astype(float).ravel()
    try:
        found = np.asarray(scores, dtype=float)
    except (TypeError, ValueError):
        found = np.zeros(())
    if found.ndim != 1 or not len(found):
        expected = "one number for each observation" if splits is None else "one number for each split"
        raise TypeError(
            f"scores[{name!r}] is of type {type(scores).__name__}; write a tree, what loo or kfold return, or {expected}."
        )
    return found
