"""The figures of a report, each with a caption that says what to look for."""

from collections.abc import Callable, Iterator
from functools import partial

import xarray as xr
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.choices import LIKELIHOODS
from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.fit_figures import (
    has_chains,
    has_latent_sites,
    has_replicates,
    has_traces,
    plot_chains,
    plot_latent_sites,
    plot_predictive_check,
    plot_traces,
)
from bnnzoo.apps.reporting.partial_dependence import CAPTION, plot_effects
from bnnzoo.apps.reporting.prediction_figures import (
    distances,
    has_distances,
    plot_calibration,
    plot_confidence,
    plot_distances,
    plot_entropy,
    plot_predictions,
    plot_reliability,
    plot_variance,
)
from bnnzoo.apps.reporting.results import Results, all_parts
from bnnzoo.apps.reporting.scores import can_be_drawn
from bnnzoo.apps.reporting.style import drawn
from bnnzoo.documents.page import Picture

__all__ = ["UNCERTAINTY", "drawings", "effect_pictures", "pictures"]

UNCERTAINTY = "Aleatoric and epistemic uncertainty"
MAX_CLASSES = 6  # whose probabilities are plotted against the inputs
_DISTANCES = (
    "Distance of each method's predictions from those of the first method: mean (dot) and interquartile range (band) over "
    "observations. The black tick is the same distance between two halves of the reference, its Monte Carlo floor. The "
    "cross is the limit that 95% of mean distances between equal distributions do not exceed: a dot to the left of its cross "
    "is no evidence of a difference."
)
_REPLICATES = (
    "Targets of the training data, and data of the same size drawn from the fitted model. Systematic differences, such as "
    "replicates below zero for a positive target, are features of the data that the model cannot produce."
)
_CHAINS = (
    "Trace: chains should look alike and show no trend. Ranks of each chain's draws among all draws: flat near the dashed line "
    "for chains that agree. Energy: the change per transition should be as wide as the energy itself."
)
_LATENT = (
    "Posterior of the parameters that are not network weights, or the norm of all weights if there are no others. Weights are "
    "not shown, because relabelling hidden units changes them without changing the network."
)
_TRACES = (
    "Objective of each optimisation. A curve that still moves at the right end calls for more steps; a jagged one for smaller "
    "steps."
)
_PREDICTIONS = (
    "Central 90% predictive interval (line) and mean (dot) of each observation; predictions on the dashed line are exact. "
    "Intervals that miss the observation are in full colour: about one in ten should."
)
_VARIANCE = (
    "The predictive variance is the mean of the variances (pale: aleatoric, noise that more data would not remove) plus the "
    "variance of the means (full colour: epistemic, which more data would reduce)."
)
_COVERAGE = (
    "Left: coverage of central predictive intervals against their nominal level. Right: empirical distribution of the "
    "probability integral transform minus the uniform; positive values on the left mean that too many observations fall low."
)
_CONFIDENCE = (
    "Probability of the predicted class, for correct (pale) and wrong (full colour) predictions: errors should lie to the "
    "left."
)
_ENTROPY = (
    "The predictive entropy of an observation is the expected entropy (aleatoric: the classes overlap) plus the mutual "
    "information between class and weights (epistemic). Rings are wrong predictions."
)
_RELIABILITY = (
    "Left: accuracy against predicted probability; calibrated probabilities lie on the dashed line. Right: accuracy if only the "
    "most certain observations are predicted, and the others rejected."
)
type Drawing = tuple[str, str, Callable[[], Figure]]


def pictures(results: Results, found: xr.Dataset | None = None) -> list[Picture]:
    """Return the figures that the groups of the trees allow, in order.

    Parameters
    ----------
    results : Results
    found : Dataset, optional
        Distances from the reference, by default computed.
    """
    return [drawn(*each) for each in drawings(results, found)]


def drawings(results: Results, found: xr.Dataset | None = None) -> Iterator[Drawing]:
    """Yield title, caption and function of each figure of :func:`pictures`, before it is drawn."""
    if found is None and has_distances(results):
        found = distances(results)
    fitted = results.fitted
    if all(one.has("predictions_observed_data") for one in fitted):
        yield from _of_classes(results) if results.classes else _of_regression(results)
    parts = all_parts(results)
    if parts and results.classes:
        yield UNCERTAINTY, _ENTROPY, lambda: plot_entropy(results, parts)
    elif parts:
        yield UNCERTAINTY, _VARIANCE, lambda: plot_variance(results, parts)
    if found is not None:
        yield f"Distance from {fitted[0].name}", _DISTANCES, lambda: plot_distances(results, found)
    if has_replicates(results):
        yield "Posterior predictive check", _REPLICATES, lambda: plot_predictive_check(results)
    if has_latent_sites(results):
        yield "Posterior of the other parameters", _LATENT + _scale(results), lambda: plot_latent_sites(results)
    for one in results.fitted:
        if has_chains(one):
            yield f"Chains of {one.name}", _CHAINS + _scale(results), partial(plot_chains, one)
    if has_traces(results):
        yield "Optimisation", _TRACES, lambda: plot_traces(results)


def effect_pictures(comparison: Comparison) -> list[Picture]:
    """Return the figures of the effects of inputs: one, or one for each of the first classes."""
    if not all(fitted.effects for fitted in comparison.fitted):
        return []
    if len(comparison.classes) <= 2:
        return [_of_effects(comparison, "Effects of inputs", len(comparison.classes) // 2)]
    named = enumerate(comparison.classes[:MAX_CLASSES])
    return [_of_effects(comparison, f"Effects of inputs on {name}", k) for k, name in named]


def _of_effects(comparison: Comparison, title: str, k: int) -> Picture:
    return drawn(title, CAPTION, lambda: plot_effects(comparison, k))


def _scale(results: Results) -> str:
    """Return the unit of parameters, where it is not that of the target."""
    is_standardised = isinstance(results, Comparison) and LIKELIHOODS[results.likelihood].support == "real"
    return " Values are on the scale of the standardised target." if is_standardised else ""


def _of_regression(results: Results) -> Iterator[Drawing]:
    if all(can_be_drawn(one.test) for one in results.fitted):
        yield f"Predictions of {results.rows} observations", _PREDICTIONS, lambda: plot_predictions(results)
        yield "Calibration", _COVERAGE, lambda: plot_calibration(results)


def _of_classes(results: Results) -> Iterator[Drawing]:
    yield "Confidence", _CONFIDENCE, lambda: plot_confidence(results)
    yield "Calibration", _RELIABILITY, lambda: plot_reliability(results)
