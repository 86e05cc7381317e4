"""Plot of how predictions in use compare with those from the time of the fit, window by window."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_plots.plot_collection import PlotCollection
from arviz_plots.visuals import labelled_title

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import (
    PLOT,
    Visuals,
    add_legend,
    draw_band,
    draw_labels,
    draw_line,
    draw_once,
    draw_points,
    figure_settings,
)
from bnnzoo.trees import refuse_other_kinds

__all__ = ["STATISTICS", "plot_windows", "shown_statistics"]

STATISTICS = {
    "unusual": "unusual rows",
    "drift_p_value": "p-value of drift",
    "score_median": "median score",
    "nll": "log score (nll)",
    "accuracy": "accuracy",
    "coverage": "coverage (90%)",
}
MAX_COLUMNS = 3


def shown_statistics(windows: xr.Dataset) -> list[str]:
    """Return the statistics that a result of :func:`bnnzoo.monitor` has."""
    return [name for name in STATISTICS if name in windows]


@with_shared_entries(PLOT)
def plot_windows(
    windows: xr.Dataset | Mapping[str, xr.Dataset],
    *,
    statistics: Sequence[str] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot what :func:`bnnzoo.monitor` found: a panel for each statistic, against the window, with its interval.

    A dashed line is the value of the reference rows. Intervals that leave it, and stay away, are drift.

    Parameters
    ----------
    windows : Dataset or mapping of str to Dataset
        Of :func:`bnnzoo.monitor`. Several, such as those of two models, have a colour each.
    statistics : sequence of str, optional
        Default: all that there are, of ``unusual``, ``drift_p_value``, ``score_median``, ``nll``, ``accuracy`` and ``coverage``.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``points``, ``band``, ``ref_line``, ``title``, ``xlabel``,
        ``ylabel``.

    Raises
    ------
    ValueError
        If a statistic is unknown, or missing in one of the results.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> from bnnzoo.validation import monitor
    >>> trees = [example_tree("classification", num_rows=200, seed=seed) for seed in (0, 1)]
    >>> plot = plot_windows(monitor(*trees, num_windows=4), backend="none")
    >>> "band" in plot.viz.children
    True
    """
    refuse_other_kinds(windows, xr.Dataset, "windows", "what bnnzoo.validation.monitor returns")
    found = {"model": windows} if isinstance(windows, xr.Dataset) else {str(k): v for k, v in windows.items()}
    shared = [name for name in STATISTICS if all(name in one for one in found.values())]
    names = shared if statistics is None else list(statistics)
    if unknown := [name for name in names if name not in shared]:
        raise ValueError(
            f"statistics names {unknown[0]!r}: write some of {', '.join(shared) or 'none'}, which all results have."
        )
    if not names:
        raise ValueError("There is no statistic to plot: pass what bnnzoo.monitor returns.")
    drawn = _curves(found, names, lambda one, name: one[name].to_numpy())
    filled = xr.concat([_bands(one, names) for one in found.values()], xr.Variable("model", list(found)))
    level = _curves(found, names, _reference)
    if plot_collection is None:
        backend = backend or rcParams["plot.backend"]
        pc_kwargs.setdefault("cols", ["statistic"])
        pc_kwargs.setdefault("aes", {"color": ["model"]})
        pc_kwargs.setdefault("col_wrap", MAX_COLUMNS)
        room = 3.2 * min(MAX_COLUMNS, len(names)) + 1.5, 2.6 * -(-len(names) // MAX_COLUMNS)  # inches, for titles too
        figure = {"figsize": room} if backend == "matplotlib" else {}
        figure |= figure_settings(backend, pc_kwargs, shares_axes=False)
        collection = PlotCollection.wrap(drawn, backend=backend, figure_kwargs=figure, **pc_kwargs)
    else:
        collection = plot_collection
    draw_band(collection, "band", filled, visuals, {})
    draw_line(collection, "ref_line", level, visuals, {"linestyle": "C1", "alpha": 0.7})
    draw_line(collection, "line", drawn, visuals, {})
    draw_points(collection, "points", drawn, visuals, {})
    draw_once(collection, _titled, "title", drawn.isel(model=0, drop=True), visuals, {})
    draw_labels(collection, drawn, visuals, "window", "")
    add_legend(collection, plot_collection, drawn)
    return collection


def _curves(found: Mapping[str, xr.Dataset], names: Sequence[str], values: Any) -> xr.Dataset:
    """Return curves ``[model, statistic, plot_axis, point]``, padded with NaN."""
    length = max(one.sizes["window"] for one in found.values())
    curves = np.full((len(found), len(names), 2, length), np.nan)
    for row, one in zip(curves, found.values(), strict=True):
        row[:, 0, : one.sizes["window"]] = np.arange(one.sizes["window"])
        for part, name in zip(row, names, strict=True):
            part[1, : one.sizes["window"]] = values(one, name)
    dims = ("model", "statistic", "plot_axis", "point")
    coords = {"model": list(found), "statistic": list(names), "plot_axis": ["x", "y"]}
    return xr.Dataset({"curve": (dims, curves)}, coords)


def _bands(one: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """Return bands ``[statistic, kwarg, point]``, of no height where a statistic has no interval."""
    edges = [
        [np.arange(one.sizes["window"]), *(one.get(f"{name}_{end}", one[name]).to_numpy() for end in ("low", "high"))]
        for name in names
    ]
    coords = {"statistic": list(names), "kwarg": ["x", "y_bottom", "y_top"]}
    return xr.Dataset({"curve": (("statistic", "kwarg", "point"), np.array(edges, dtype=float))}, coords)


def _reference(one: xr.Dataset, name: str) -> float:
    return float(one[f"reference_{name}"]) if f"reference_{name}" in one else float("nan")


def _titled(data: xr.DataArray, target: Any, **kwargs: Any) -> Any:
    return labelled_title(data, target, text=STATISTICS[str(data["statistic"].item())], **kwargs)
