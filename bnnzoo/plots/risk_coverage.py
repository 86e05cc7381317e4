"""Risk against coverage: the gain from rejecting uncertain observations."""

from collections.abc import Callable, Mapping
from typing import Any

import xarray as xr
from arviz_plots.plot_collection import PlotCollection

from bnnzoo.calibration import misclassified, risk_coverage_curve
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, add_legend, curves, draw_labels, draw_line, new_collection, of_each
from bnnzoo.uncertainty import predictive_entropy

__all__ = ["plot_risk_coverage"]


@with_shared_entries(PLOT)
def plot_risk_coverage(
    data: xr.DataTree | Mapping[str, xr.DataTree],
    *,
    uncertainty: Callable[[xr.DataTree], xr.DataArray] = predictive_entropy,
    loss: Callable[[xr.DataTree], xr.DataArray] = misclassified,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the mean loss of the most certain observations against the fraction that is kept.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
        Predictions with observations. Several trees are drawn in one panel.
    uncertainty, loss : callable
        Functions from a tree to one value per observation: observations are rejected by uncertainty, and the loss is averaged.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``oracle`` (rejection by the loss itself), ``xlabel``, ``ylabel``.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_risk_coverage(example_tree("classification", num_rows=50), backend="none")
    >>> "oracle" in plot.viz.children
    True
    """
    found = of_each(data, lambda tree: risk_coverage_curve(uncertainty(tree), loss(tree)))
    drawn, oracle = (
        curves({name: (curve["coverage"].values, curve[risk].values) for name, curve in found.items()})
        for risk in ("risk", "risk_oracle")
    )
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_line(collection, "oracle", oracle, visuals, {"linestyle": "C1", "alpha": 0.5})
    draw_line(collection, "line", drawn, visuals, {})
    draw_labels(collection, drawn, visuals, "coverage (fraction kept)", "risk (mean loss)")
    add_legend(collection, plot_collection, drawn)
    return collection
