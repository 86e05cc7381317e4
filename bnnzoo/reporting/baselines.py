"""Predictions that any network should beat: those of no inputs, and of a linear model."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.linear_model import LinearRegression, LogisticRegression

from bnnzoo.predictive import datatree
from bnnzoo.reporting.results import Baseline
from bnnzoo.reporting.scores import Score
from bnnzoo.tables import Table

__all__ = ["baselines"]

LOG_MARGIN = 1.0  # added to the count of each class, so that none has probability zero


def baselines(table: Table, scores: tuple[Score, ...]) -> tuple[Baseline, ...]:
    """Return the predictions without inputs and those of a linear model, with their scores.

    For regression: a Gaussian with the mean and standard deviation of the training part, and least squares with the
    residuals' standard deviation. For classification: the frequencies of the classes, and logistic regression.
    """
    trees = _of_regression(table) if table.task == "regression" else _of_classes(table)
    return tuple(
        Baseline(name, tree, {score.label: score.function(tree) for score in scores}) for name, tree in trees.items()
    )


def _of_regression(table: Table) -> dict[str, xr.DataTree]:
    y = np.asarray(table.y_train, dtype=float)
    line = LinearRegression().fit(table.x_train, y)
    degrees = max(1, len(y) - np.linalg.matrix_rank(table.x_train) - 1)
    residual = np.sqrt(np.square(y - line.predict(table.x_train)).sum() / degrees)
    constant = np.full(len(table.y_test), y.mean())
    return {
        "mean only": _gaussian(table, constant, y.std(ddof=1)),
        "linear regression": _gaussian(table, line.predict(table.x_test), residual),
    }


def _gaussian(table: Table, mean: NDArray[np.floating], sd: float) -> xr.DataTree:
    y = table.y_loc + table.y_scale * np.asarray(table.y_test, dtype=float)
    mean, sd = table.y_loc + table.y_scale * mean, table.y_scale * max(sd, np.finfo(float).tiny)
    moments = {"mean": mean, "variance": np.full_like(mean, sd**2), "entropy": norm.entropy(mean, sd)}
    return _tree(moments, norm.logpdf(y, mean, sd), mean, y)


def _of_classes(table: Table) -> dict[str, xr.DataTree]:
    y, num_classes = np.asarray(table.y_train, dtype=int), len(table.classes)
    counts = np.bincount(y, minlength=num_classes) + LOG_MARGIN
    frequencies = np.broadcast_to(counts / counts.sum(), (len(table.y_test), num_classes))
    logistic = LogisticRegression(max_iter=1000).fit(table.x_train, y)
    return {
        "class frequencies": _categorical(table, frequencies),
        "logistic regression": _categorical(table, logistic.predict_proba(table.x_test)),
    }


def _categorical(table: Table, probs: NDArray[np.floating]) -> xr.DataTree:
    y = np.asarray(table.y_test, dtype=int)
    smallest = np.finfo(float).tiny
    entropy = -(probs * np.log(np.maximum(probs, smallest))).sum(-1)
    log_prob = np.log(np.maximum(probs[np.arange(len(y)), y], smallest))
    return _tree({"probs": probs, "entropy": entropy}, log_prob, probs.argmax(-1), y)


def _tree(
    moments: Mapping[str, NDArray[np.floating]],
    log_density: NDArray[np.floating],
    predicted: NDArray[np.generic],
    y: NDArray[np.generic],
) -> xr.DataTree:
    groups = {
        "predictions": datatree.by_row({"y": predicted[None, None]}),
        "predictions_log_likelihood": datatree.by_row({"y": log_density[None, None]}),
        "predictions_observed_data": datatree.by_row({"y": y}, draws=False),
        "conditional": datatree.conditional({name: value[None, None] for name, value in moments.items()}),
    }
    return datatree.from_groups(groups, {"sampling": "ensemble"})
