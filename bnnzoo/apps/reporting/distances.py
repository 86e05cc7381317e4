"""Figure of the distances from the reference in function space."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.gather import some_rows
from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.style import INK, clean, colours, is_narrow, new_figure
from bnnzoo.diagnostics import compare_posteriors

__all__ = ["TITLES", "distances", "has_distances", "plot_distances"]

MIN_DRAWS = 8  # since halves of the reference are compared with each other
TITLES = {
    "mean_difference": "Means: difference / sd",
    "log_sd_ratio": "Standard deviations: |log ratio|",
    "wasserstein": "Distributions: Wasserstein-1",
    "total_variation": "Averages: total variation",
    "disagreement": "Most probable class differs",
}


def has_distances(results: Results) -> bool:
    """Tell whether the reference and another method have enough draws."""
    first, *others = (_has_enough(fitted) for fitted in results.fitted)
    return first and any(others)


def distances(results: Results) -> xr.Dataset:
    """Return the distances from the reference, and their Monte Carlo floors, of at most two hundred rows."""
    trees = {one.name: some_rows(one.test) for one in results.fitted if _has_enough(one)}
    return compare_posteriors(trees, next(iter(trees)))


def plot_distances(results: Results, found: xr.Dataset) -> Figure:
    """Plot the mean and interquartile range of each distance over held-out observations, the Monte Carlo floor and limit."""
    reference, others = results.fitted[0].name, [str(name) for name in found["model"].to_numpy()]
    shown = [str(name) for name in found.data_vars if f"{name}_floor" in found]
    figure, panels = new_figure(len(shown), height=1.3 + 0.45 * len(others))
    colour = colours(f.name for f in results.fitted)
    for axes, distance in zip(panels, shown, strict=True):
        for place, name in enumerate(others):
            values, floor = (_of(found[key], name) for key in (distance, f"{distance}_floor"))
            low, high = np.nanquantile(values, [0.25, 0.75])
            axes.hlines(place, low, high, color=colour[name], linewidth=5, alpha=0.3)
            axes.plot(np.nanmean(values), place, "o", color=colour[name], markersize=8)
            axes.plot(np.nanmean(floor), place, "|", color=INK, markersize=16, markeredgewidth=2)
            limit = float(found[f"{distance}_limit"].sel(model=name))
            axes.plot(limit, place, "x", color=INK, markersize=8, markeredgewidth=1.5)
        axes.set_yticks(range(len(others)), others if axes is panels[0] or is_narrow() else [""] * len(others))
        axes.set(ylim=(len(others) - 0.4, -0.6), xlim=(0, None))
        axes.grid(visible=False, axis="y")
        axes.locator_params(axis="x", nbins=4)
        clean(axes, TITLES.get(distance, distance), f"distance from {reference}")
    return figure


def _has_enough(fitted: Fitted) -> bool:
    names = {*fitted.test["conditional"].data_vars} if fitted.has("conditional") else set()
    return bool(names & {"mean", "probs"}) and fitted.test["conditional"].sizes["draw"] >= MIN_DRAWS


def _of(values: xr.DataArray, name: str) -> np.ndarray:
    return values.sel(model=name).to_numpy().ravel()
