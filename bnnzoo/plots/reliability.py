"""Plot of the reliability of class probabilities."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection

from bnnzoo.calibration import reliability_curve
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import (
    PLOT,
    Visuals,
    add_legend,
    curves,
    draw_labels,
    draw_line,
    draw_points,
    new_collection,
    of_each,
)

__all__ = ["plot_reliability"]


@with_shared_entries(PLOT)
def plot_reliability(
    data: xr.DataTree | Mapping[str, xr.DataTree],
    *,
    y: xr.DataArray | None = None,
    num_bins: int = 10,
    equal_mass: bool = False,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot observed frequency against predicted probability; calibrated predictions lie on the diagonal.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
        With ``conditional/probs`` and observations. Several trees are drawn in one panel.
    y : DataArray [obs_id], optional
        Observed labels (default: those of each tree).
    num_bins : int
    equal_mass : bool
        Use bins with about equally many observations, instead of bins of equal width.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``points``, ``ref_line``, ``xlabel``, ``ylabel``.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_reliability(example_tree("classification", num_rows=50), backend="none")
    >>> "line" in plot.viz.children
    True
    """
    found = of_each(data, lambda tree: reliability_curve(tree, y, num_bins=num_bins, equal_mass=equal_mass))
    drawn = curves({name: (curve["confidence"].values, curve["frequency"].values) for name, curve in found.items()})
    diagonal = curves({"diagonal": (np.array([0.0, 1.0]), np.array([0.0, 1.0]))}).isel(model=0, drop=True)
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_line(collection, "ref_line", diagonal, visuals, {"color": "gray", "linestyle": "C1"})
    draw_line(collection, "line", drawn, visuals, {})
    draw_points(collection, "points", drawn, visuals, {})
    draw_labels(collection, drawn, visuals, "probability of the predicted class", "frequency of being right")
    add_legend(collection, plot_collection, drawn)
    return collection
