"""Histograms of an uncertainty in two groups of rows: right against wrong, or in against out of distribution."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
from numpy.typing import NDArray

from bnnzoo.calibration import misclassified
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, add_legend, draw_labels, draw_line, draw_titles, new_collection, of_each
from bnnzoo.uncertainty import predictive_entropy

__all__ = ["plot_uncertainty_histogram"]

type Array = NDArray[np.floating]


@with_shared_entries(PLOT)
def plot_uncertainty_histogram(
    data: xr.DataTree | Mapping[str, xr.DataTree],
    outside: xr.DataTree | Mapping[str, xr.DataTree] | None = None,
    *,
    uncertainty: Callable[[xr.DataTree], xr.DataArray] = predictive_entropy,
    num_bins: int = 20,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the distribution of an uncertainty for right and for wrong predictions, or for inputs in and out of distribution.

    An uncertainty that detects errors, or other inputs, separates the two. Each histogram has area one.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
        Predictions, with labels if ``outside`` is not given. Several trees have a panel each.
    outside : DataTree or mapping of str to DataTree, optional
        Predictions for out-of-distribution inputs, under the same names. Default: none, and rows are grouped by whether their
        most probable class is right.
    uncertainty : callable
        From a tree to one value for each row.
    num_bins : int
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``title``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If ``outside`` has other names than ``data``.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_uncertainty_histogram(example_tree("classification", num_rows=50), backend="none")
    >>> "line" in plot.viz.children
    True
    """
    inside = of_each(data, uncertainty)
    if outside is None:
        wrong = of_each(data, lambda tree: misclassified(tree).to_numpy().ravel())
        groups = {n: {"right": _flat(u)[~wrong[n]], "wrong": _flat(u)[wrong[n]]} for n, u in inside.items()}
    else:
        others = of_each(outside, uncertainty)
        if {*others} != {*inside}:
            raise ValueError(
                f"outside has the names {', '.join(others)}, but data has {', '.join(inside)}: use the same."
            )
        groups = {name: {"in": _flat(u), "out": _flat(others[name])} for name, u in inside.items()}
    drawn = _histograms(groups, num_bins)
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs, facet=True, hue="group")
    draw_line(collection, "line", drawn, visuals, {})
    values = next(iter(inside.values()))
    name = str(values.name or "uncertainty").replace("_", " ")
    draw_labels(
        collection,
        drawn,
        visuals,
        f"{name} ({values.attrs['units']})" if values.attrs.get("units", "1") != "1" else name,
        "density",
    )
    draw_titles(collection, drawn, visuals)
    add_legend(collection, plot_collection, drawn, "group")
    return collection


def _flat(values: xr.DataArray) -> Array:
    return np.asarray(values.to_numpy()).ravel()


def _histograms(groups: Mapping[str, Mapping[str, Array]], num_bins: int) -> xr.Dataset:
    """Return outlines ``[model, group, plot_axis, point]`` of histograms with common bins."""
    every = np.concatenate([values for group in groups.values() for values in group.values()])
    edges = np.linspace(every.min(), every.max() if np.ptp(every) > 0 else every.min() + 1, num_bins + 1)
    x = np.concatenate([edges[:1], np.repeat(edges[1:-1], 2), edges[-1:]])
    x = np.concatenate([x[:1], x, x[-1:]])
    outlines = [[np.stack([x, _heights(values, edges)]) for values in group.values()] for group in groups.values()]
    coords = {"model": list(groups), "group": list(next(iter(groups.values()))), "plot_axis": ["x", "y"]}
    return xr.Dataset({"curve": (("model", "group", "plot_axis", "point"), np.array(outlines))}, coords)


def _heights(values: Array, edges: Array) -> Array:
    if not len(values):
        return np.zeros(2 * len(edges))
    counts = np.histogram(values, edges)[0] / (len(values) * np.diff(edges))
    return np.concatenate([[0.0], np.repeat(counts, 2), [0.0]])
