"""Figure that compares the training data with data drawn from the fitted model."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.style import INK, clean, colours, new_figure

__all__ = ["has_replicates", "plot_predictive_check"]

NUM_REPLICATES = 50


def has_replicates(results: Results) -> bool:
    """Tell whether all trees hold draws of the training data."""
    return any(_is_replicated(fitted) for fitted in results.fitted)


def plot_predictive_check(results: Results) -> Figure:
    """Plot the observed targets of the training part with replicates: histograms, or counts of classes."""
    replicated = [fitted for fitted in results.fitted if _is_replicated(fitted)]
    figure, panels = new_figure(len(replicated), share=True)
    colour = colours(f.name for f in results.fitted)
    data = [_data(fitted) for fitted in replicated]
    edges = None if results.classes else _edges(data)
    for axes, fitted, (y, replicates) in zip(panels, replicated, data, strict=True):
        if edges is None:
            _counts(axes, y, replicates, results.classes, colour[fitted.name])
        else:
            _histograms(axes, y, replicates, edges, colour[fitted.name])
        clean(axes, fitted.name, results.target)
    panels[0].set_ylabel("observations")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _is_replicated(fitted: Fitted) -> bool:
    return {"posterior_predictive", "observed_data"} <= {*fitted.train.children}


def _data(fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    (y,) = fitted.train["observed_data"].data_vars.values()
    (draws,) = fitted.train["posterior_predictive"].data_vars.values()
    flat = draws.transpose("chain", "draw", ...).to_numpy().reshape(-1, y.size)
    chosen = flat[np.linspace(0, len(flat) - 1, min(NUM_REPLICATES, len(flat))).astype(int)]
    seen = np.isfinite(y.to_numpy().ravel())
    return y.to_numpy().ravel()[seen], chosen[:, seen]


def _edges(data: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return bins for all methods, so that the data look alike beside each."""
    ends = [np.quantile(replicates, [0.002, 0.998]) for _, replicates in data] + [[y.min(), y.max()] for y, _ in data]
    return np.linspace(min(low for low, _ in ends), max(high for _, high in ends), 31)


def _histograms(axes: Axes, y: np.ndarray, replicates: np.ndarray, edges: np.ndarray, colour: str) -> None:
    for i, values in enumerate(replicates):
        label = "replicates of the fitted model" if i == 0 else None
        axes.stairs(np.histogram(values, edges)[0], edges, color=colour, alpha=0.18, linewidth=0.8, label=label)
    axes.stairs(np.histogram(y, edges)[0], edges, color=INK, linewidth=1.8, label="training data")


def _counts(axes: Axes, y: np.ndarray, replicates: np.ndarray, classes: tuple[str, ...], colour: str) -> None:
    places = np.arange(len(classes))
    counts = np.stack([np.bincount(row.astype(int), minlength=len(classes)) for row in replicates])
    low, high = np.quantile(counts, [0.05, 0.95], axis=0)
    axes.bar(places, np.bincount(y.astype(int), minlength=len(classes)), color=INK, alpha=0.2, label="training data")
    middle = counts.mean(0)
    errors = np.stack([middle - low, high - middle])
    axes.errorbar(places, middle, errors, fmt="o", color=colour, capsize=4, label="replicates: mean and 90%")
    axes.set_xticks(places, classes)
    axes.grid(visible=False, axis="x")
