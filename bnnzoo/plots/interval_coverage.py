"""Plot of the coverage of predictive intervals."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection

from bnnzoo.calibration import coverage_curve
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import (
    PLOT,
    Visuals,
    add_legend,
    curves,
    draw_band,
    draw_labels,
    draw_line,
    new_collection,
    of_each,
)

__all__ = ["plot_coverage"]


@with_shared_entries(PLOT)
def plot_coverage(
    data: xr.DataTree | Mapping[str, xr.DataTree],
    *,
    y: xr.DataArray | None = None,
    band: float = 0.95,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the coverage of central predictive intervals against their nominal level.

    Intervals are too narrow below the diagonal and too wide above it. At each level, calibrated predictions lie inside the
    band with the given probability.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
        With draws of y and observations. Several trees of the same observations are drawn in one panel.
    y : DataArray [obs_id, ...], optional
        Observations (default: those of each tree).
    band : float
        Probability of the band.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``band``, ``ref_line``, ``xlabel``, ``ylabel``.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_coverage(example_tree("regression", num_rows=50), backend="none")
    >>> "band" in plot.viz.children
    True
    """
    found = of_each(data, lambda tree: coverage_curve(tree, y, band=band))
    drawn = curves({name: (curve["level"].values, curve["coverage"].values) for name, curve in found.items()})
    diagonal = curves({"diagonal": (np.array([0.0, 1.0]), np.array([0.0, 1.0]))}).isel(model=0, drop=True)
    first = next(iter(found.values()))
    edges = np.stack([first["level"].values, first["low"].values, first["high"].values])
    filled = xr.Dataset({"curve": (("kwarg", "point"), edges)}, coords={"kwarg": ["x", "y_bottom", "y_top"]})
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_band(collection, "band", filled, visuals, {"color": "gray"})
    draw_line(collection, "ref_line", diagonal, visuals, {"color": "gray", "linestyle": "C1"})
    draw_line(collection, "line", drawn, visuals, {})
    draw_labels(collection, drawn, visuals, "nominal level", "coverage")
    add_legend(collection, plot_collection, drawn)
    return collection
