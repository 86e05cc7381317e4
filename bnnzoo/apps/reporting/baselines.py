"""Predictions that any network should beat: those of no inputs, and of a linear model."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from scipy.stats import beta, gamma, nbinom, norm
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression, PoissonRegressor

from bnnzoo.apps.reporting.results import Baseline
from bnnzoo.apps.reporting.scores import ScoreColumn
from bnnzoo.apps.tables import Table
from bnnzoo.models.likelihoods.named import Support
from bnnzoo.predictive import datatree

__all__ = ["baselines"]

type Floats = NDArray[np.floating]
NUM_QUANTILES = 1000  # that stand for a predictive distribution
LOG_DISPERSION = (-6.0, 14.0)  # range of the logarithm
PENALTY = 1e-4  # of generalised linear models, which have no optimum under separation
LOG_MARGIN = 1.0  # added to the count of each class, so that none has probability zero


def baselines(table: Table, scores: tuple[ScoreColumn, ...], support: Support | None = None) -> tuple[Baseline, ...]:
    """Return the predictions without inputs and those of a linear model, with their scores.

    For regression: a Gaussian with the mean and standard deviation of the training part, and least squares with the
    residuals' standard deviation. For classification: the frequencies of the classes, and logistic regression. For counts:
    negative binomial distributions whose means are constant or those of a Poisson regression; for positive numbers gamma
    distributions, likewise; for proportions beta distributions, whose means are linear on the logit scale. Their dispersion
    is that of the highest likelihood.

    Parameters
    ----------
    table : Table
    scores : tuple of ScoreColumn
    support : {"class", "count", "positive", "proportion", "real"}, optional
        Values of the target. Default: real or class.
    """
    if support is not None and support in _DISPERSED:
        family, predicted = _DISPERSED[support]
        y = np.asarray(table.y_train, dtype=float)
        regression, inside, outside = predicted(table)
        constant = np.full(len(y), y.mean()), np.full(len(table.y_test), y.mean())
        trees = {
            each: _of_distribution(table, family(test, _dispersion(family, train, y)))
            for each, (train, test) in {"mean only": constant, regression: (inside, outside)}.items()
        }
    else:
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


def _poisson_means(table: Table) -> tuple[str, Floats, Floats]:
    return "negative binomial regression", *_glm(PoissonRegressor(alpha=PENALTY, max_iter=1000), table)


def _gamma_means(table: Table) -> tuple[str, Floats, Floats]:
    return "gamma regression", *_glm(GammaRegressor(alpha=PENALTY, max_iter=1000), table)


def _logit_means(table: Table) -> tuple[str, Floats, Floats]:
    line = LinearRegression().fit(table.x_train, logit(np.asarray(table.y_train, dtype=float)))
    return "linear regression of the logit", expit(line.predict(table.x_train)), expit(line.predict(table.x_test))


def _glm(model: Any, table: Table) -> tuple[Floats, Floats]:
    fitted = model.fit(table.x_train, table.y_train)
    largest = np.finfo(float).max ** 0.25  # predictions far from the data may overflow
    inside, outside = (np.minimum(fitted.predict(x), largest) for x in (table.x_train, table.x_test))
    return inside, outside


# the distribution with a mean and a dispersion, and means for the training and the held-out rows
_DISPERSED: Mapping[str, tuple[Callable[[Floats, float], Any], Callable[[Table], tuple[str, Floats, Floats]]]] = {
    "count": (lambda mean, size: nbinom(size, size / (size + mean)), _poisson_means),
    "positive": (lambda mean, shape: gamma(shape, scale=mean / shape), _gamma_means),
    "proportion": (lambda mean, precision: beta(mean * precision, (1 - mean) * precision), _logit_means),
}


def _dispersion(family: Callable[[Floats, float], Any], mean: Floats, y: Floats) -> float:
    log_density = "logpmf" if hasattr(family(mean, 1.0).dist, "logpmf") else "logpdf"
    found = minimize_scalar(
        lambda log: -getattr(family(mean, float(np.exp(log))), log_density)(y).sum(),
        bounds=LOG_DISPERSION,
        method="bounded",
    )
    return float(np.exp(found.x))


def _of_distribution(table: Table, predictive: Any) -> xr.DataTree:
    """Return the tree of a scipy distribution with one element for each held-out row."""
    y, scale = np.asarray(table.y_test, dtype=float), table.y_scale
    is_count = hasattr(predictive.dist, "logpmf")
    log_density = predictive.logpmf(y) if is_count else predictive.logpdf(y) - np.log(scale)
    levels = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
    moments = {"mean": scale * predictive.mean(), "variance": scale**2 * predictive.var()}
    tree = _tree(moments, np.maximum(log_density, np.log(np.finfo(float).tiny)), moments["mean"], scale * y)
    tree["predictions"] = xr.DataTree(datatree.by_row({"y": scale * predictive.ppf(levels[:, None])[None]}))
    return tree


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
