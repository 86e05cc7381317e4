"""Plot of distances between posteriors."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, add_legend, curves, draw_labels, draw_line, new_collection
from bnnzoo.trees import refuse_other_kind

__all__ = ["plot_posterior_comparison"]


@with_shared_entries(PLOT)
def plot_posterior_comparison(
    comparison: xr.Dataset,
    *,
    distance: str = "wasserstein",
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot for each model the fraction of observations whose distance from the reference is at most d, against d.

    The dashed curve is the Monte Carlo floor, the same for two halves of the reference. A curve on the floor is no
    evidence of a difference.

    Parameters
    ----------
    comparison : Dataset
        From :func:`bnnzoo.diagnostics.compare_posteriors`.
    distance : str
        A variable of the comparison that has a floor.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``floor``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If there is no such distance.

    Examples
    --------
    >>> from bnnzoo.diagnostics import compare_posteriors
    >>> from bnnzoo.testing import example_tree
    >>> trees = {"nuts": example_tree("regression"), "mfvi": example_tree("regression", seed=1)}
    >>> plot = plot_posterior_comparison(compare_posteriors(trees, reference="nuts"), backend="none")
    >>> "floor" in plot.viz.children
    True
    """
    refuse_other_kind(comparison, xr.Dataset, "comparison", "what bnnzoo.diagnostics.compare_posteriors returns")
    known = [str(name) for name in comparison.data_vars if f"{name}_floor" in comparison.data_vars]
    if distance not in known:
        raise ValueError(
            f"No distance {distance!r} with a floor in the comparison; it has {', '.join(known) or 'none'}."
        )
    drawn, floor = (_sorted(comparison[name]) for name in (distance, f"{distance}_floor"))
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_line(collection, "floor", floor, visuals, {"linestyle": "C1", "alpha": 0.6})
    draw_line(collection, "line", drawn, visuals, {})
    label = f"{distance.replace('_', ' ')} to {comparison.attrs.get('reference', 'the reference')}"
    draw_labels(collection, drawn, visuals, label, "fraction of observations")
    add_legend(collection, plot_collection, drawn)
    return collection


def _sorted(distances: xr.DataArray) -> xr.Dataset:
    each = {str(name): np.sort(distances.sel(model=name).values.ravel()) for name in distances["model"].values}
    return curves({name: (values, np.arange(1, len(values) + 1) / len(values)) for name, values in each.items()})
