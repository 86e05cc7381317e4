"""Scores of held-out predictions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from bnnzoo import calibration
from bnnzoo.trees import log_mean_exp, shannon_entropy

__all__ = [
    "CLASSIFICATION",
    "ENOUGH_DRAWS",
    "REGRESSION",
    "ScoreColumn",
    "accuracy",
    "brier",
    "can_be_drawn",
    "class_probabilities",
    "coverage",
    "crps",
    "draws_of",
    "ece_of",
    "error_auroc",
    "interval",
    "is_gaussian",
    "log_density",
    "observed",
    "predictive_mean",
    "r_squared",
    "rmse",
]

type Floats = NDArray[np.floating]
LEVEL = 0.9
ENOUGH_DRAWS = 100  # whose own noise represents the likelihood
MIN_QUANTILES, MIN_POINTS = 50, 1000  # of the likelihood of each of fewer draws; in all


@dataclass(frozen=True)
class ScoreColumn:
    """A column of the table of scores.

    Attributes
    ----------
    label : str
        Heading of the column.
    function : callable
        Maps a tree of predictions with observations to a number.
    better : {"higher", "lower", "nominal"}
        Which values are better; "nominal" means close to ``nominal``.
    explanation : str
        Definition in one sentence.
    has_units : bool
        Whether the score is in units of the target, which sets its number of decimals.
    nominal : float
    """

    label: str
    function: Callable[[xr.DataTree], float]
    better: str
    explanation: str
    has_units: bool = False
    nominal: float = 0.0

    @property
    def is_brief(self) -> bool:
        """Whether it has a place in a narrow table."""
        return self.label not in ("R²", "ECE", "AUROC of errors")

    def shown(self, values: Mapping[str, float]) -> dict[str, str]:
        """Return values as text: three decimals, or four digits of the largest value of a score with units; – for NaN."""
        digits = 3
        if self.has_units:
            largest = max((abs(value) for value in values.values() if np.isfinite(value)), default=0.0)
            digits = min(12, max(0, 3 - int(np.floor(np.log10(largest))))) if largest else 3
        return {name: "–" if np.isnan(value) else f"{value:,.{digits}f}" for name, value in values.items()}

    def best(self, values: Mapping[str, float]) -> str:
        """Return the name whose value is best; NaN never is, unless all are."""
        keys = {
            "higher": lambda name: -values[name],
            "lower": lambda name: values[name],
            "nominal": lambda name: abs(values[name] - self.nominal),
        }
        return min(values, key=lambda name: np.inf if np.isnan(values[name]) else keys[self.better](name))


def observed(tree: xr.DataTree) -> NDArray[Any]:
    """Return the held-out observations [N]."""
    return _only(tree, "predictions_observed_data").to_numpy()


def draws_of(tree: xr.DataTree) -> NDArray[Any]:
    """Return draws of y [M, N], with chains concatenated.

    If the posterior has few draws, as for MAP, a single draw of y for each of them would represent the noise poorly. They
    are then replaced by quantiles of a Gaussian likelihood, at least fifty for each draw. Draws that a tree does not have are
    drawn from Gaussians with its moments.
    """
    values = _flat(_only(tree, "predictions")) if "predictions" in tree.children else None
    if values is not None and (len(values) >= ENOUGH_DRAWS or not is_gaussian(tree)):
        return values
    moments = tree["conditional"].to_dataset()
    mean, sd = _flat(moments["mean"]), np.sqrt(_flat(moments["variance"]))
    if len(mean) >= ENOUGH_DRAWS:
        return mean + sd * np.random.default_rng(0).normal(size=mean.shape)
    count = max(MIN_QUANTILES, -(-MIN_POINTS // len(mean)))
    quantiles = norm.ppf((np.arange(count) + 0.5) / count)
    return (mean + sd * quantiles[:, None, None]).reshape(-1, mean.shape[1])


def is_gaussian(tree: xr.DataTree) -> bool:
    """Tell whether the moments of each draw are those of a Gaussian, judged by its entropy."""
    moments = tree["conditional"].to_dataset() if "conditional" in tree.children else xr.Dataset()
    if not {"mean", "variance", "entropy"} <= {*moments.data_vars}:
        return False
    expected = norm.entropy(scale=np.sqrt(moments["variance"].to_numpy()))
    return bool(np.allclose(moments["entropy"].to_numpy(), expected, rtol=1e-4, atol=1e-4))


def can_be_drawn(tree: xr.DataTree) -> bool:
    """Tell whether :func:`draws_of` has what it needs: draws of y, or the mean and variance of each draw."""
    moments = tree["conditional"].to_dataset() if "conditional" in tree.children else xr.Dataset()
    return "predictions" in tree.children or {"mean", "variance"} <= {*moments.data_vars}


def predictive_mean(tree: xr.DataTree) -> Floats:
    """Return the posterior predictive mean [N]: that of the conditional means, or else that of the draws of y."""
    if "conditional" in tree.children and "mean" in tree["conditional"].data_vars:
        return tree["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    return draws_of(tree).mean(0)


def class_probabilities(tree: xr.DataTree) -> Floats:
    """Return the posterior predictive probability of each class [N, K], averaged over draws."""
    return tree["conditional"]["probs"].mean(("chain", "draw")).to_numpy()


def log_density(tree: xr.DataTree) -> Floats:
    r"""Return the log posterior predictive density of each observation [N].

    .. math:: \log p(y_n | x_n) \approx \log \frac{1}{M} \sum_m p(y_n | x_n, \theta_m)
    """
    if "predictions_log_likelihood" not in tree.children:  # which classes do not need
        probs = class_probabilities(tree)
        return np.log(np.maximum(probs[np.arange(len(probs)), observed(tree).astype(int)], np.finfo(float).tiny))
    return log_mean_exp(_only(tree, "predictions_log_likelihood")).to_numpy()


def interval(tree: xr.DataTree, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return the ends [N] of the central predictive interval of each observation."""
    tail = (1.0 - level) / 2
    lower, upper = np.quantile(draws_of(tree), [tail, 1.0 - tail], axis=0)
    return lower, upper


def rmse(tree: xr.DataTree) -> float:
    """Return the root mean squared error of the posterior predictive mean, in units of y."""
    return float(np.sqrt(np.mean((predictive_mean(tree) - observed(tree)) ** 2)))


def r_squared(tree: xr.DataTree) -> float:
    """Return one minus the ratio of the squared errors of the predictive mean to those of the observations' own mean."""
    y = observed(tree)
    return float(1.0 - np.square(rmse(tree)) / np.var(y)) if np.var(y) else float("nan")


def ece_of(tree: xr.DataTree) -> float:
    """Return the expected calibration error of the most probable class, over 15 bins."""
    return float(calibration.ece(*_probabilities_and_codes(tree)))


def error_auroc(tree: xr.DataTree) -> float:
    """Return the area under the ROC curve of the predictive entropy for errors; NaN if all rows are right, or none is."""
    probs = class_probabilities(tree)
    wrong = probs.argmax(-1) != observed(tree)
    if wrong.all() or not wrong.any():
        return float("nan")
    return float(roc_auc_score(wrong, shannon_entropy(xr.DataArray(probs, dims=("obs_id", "class_id")))))


def mean_log_density(tree: xr.DataTree) -> float:
    """Return the mean log posterior predictive density, in nats."""
    return float(log_density(tree).mean())


def crps(tree: xr.DataTree) -> float:
    """Return the mean of :func:`bnnzoo.calibration.crps` over the observations, in units of y."""
    draws = xr.DataArray(draws_of(tree)[None].astype(np.float64), dims=("chain", "draw", "obs_id"))
    return float(calibration.crps(draws, xr.DataArray(observed(tree), dims="obs_id")).mean())


def coverage(tree: xr.DataTree) -> float:
    """Return the fraction of observations inside their 90% interval."""
    lower, upper = interval(tree)
    y = observed(tree)
    return float(np.mean((lower <= y) & (y <= upper)))


def accuracy(tree: xr.DataTree) -> float:
    """Return the fraction of observations whose most probable class is correct."""
    return float(calibration.accuracy(*_probabilities_and_codes(tree))["value"])


def brier(tree: xr.DataTree) -> float:
    """Return the mean squared distance between class probabilities and the one-hot observation, from 0 to 2."""
    return float(calibration.brier(*_probabilities_and_codes(tree)).mean())


def _probabilities_and_codes(tree: xr.DataTree) -> tuple[xr.DataArray, xr.DataArray]:
    """Return averaged probabilities as a single draw, and observations; neither has the names of classes."""
    probs = xr.DataArray(class_probabilities(tree)[None, None], dims=("chain", "draw", "obs_id", "class_id"))
    return probs, xr.DataArray(observed(tree).astype(int), dims="obs_id")


def _flat(values: xr.DataArray) -> NDArray[Any]:
    return values.to_numpy().reshape(-1, *values.shape[2:])


def _only(tree: xr.DataTree, group: str) -> xr.DataArray:
    (values,) = tree[group].data_vars.values()
    return values


REGRESSION = (
    ScoreColumn(
        "RMSE", rmse, "lower", "Root mean squared error of the predictive mean, in units of the target.", has_units=True
    ),
    ScoreColumn(
        "log density",
        mean_log_density,
        "higher",
        "Mean log predictive density of an observation, in nats; it depends on the unit of the target, differences do not.",
    ),
    ScoreColumn(
        "CRPS",
        crps,
        "lower",
        "Continuous ranked probability score: distance of the predictive distribution from the observation, in "
        "units of the target.",
        has_units=True,
    ),
    ScoreColumn(
        "R²",
        r_squared,
        "higher",
        "Share of the variance of the held-out observations that the predictive mean explains; 0 is no better than their mean.",
    ),
    ScoreColumn(
        "90% coverage",
        coverage,
        "nominal",
        "Fraction of observations inside their 90% predictive interval.",
        nominal=LEVEL,
    ),
)


CLASSIFICATION = (
    ScoreColumn("accuracy", accuracy, "higher", "Fraction of observations whose most probable class is correct."),
    ScoreColumn(
        "log density", mean_log_density, "higher", "Mean log predictive probability of the true class, in nats."
    ),
    ScoreColumn(
        "Brier", brier, "lower", "Mean squared distance between probabilities and the one-hot observation, from 0 to 2."
    ),
    ScoreColumn(
        "ECE",
        ece_of,
        "lower",
        "Expected calibration error: mean distance of the probability of the predicted class from the accuracy, over 15 bins.",
    ),
    ScoreColumn(
        "AUROC of errors",
        error_auroc,
        "higher",
        "Probability that a wrong prediction has a higher predictive entropy than a correct one; 0.5 is chance.",
    ),
)
