"""Plot of predictions along one input."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
from numpy.typing import ArrayLike

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import (
    PLOT,
    Visuals,
    bands,
    curves,
    draw_band,
    draw_labels,
    draw_line,
    draw_observed,
    draw_titles,
    new_collection,
    of_each,
)
from bnnzoo.trees import SAMPLE_DIMS, moment
from bnnzoo.uncertainty import epistemic_variance, total_variance

__all__ = ["plot_function"]


@with_shared_entries(PLOT)
def plot_function(
    data: xr.DataTree | Mapping[str, xr.DataTree],
    x: ArrayLike,
    *,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    num_sds: float = 2.0,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the predictive mean along one input, with bands of epistemic and total uncertainty.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
        With ``conditional/mean`` and ``conditional/variance`` ``[chain, draw, obs_id]`` of at least two draws. Several
        trees have one panel each.
    x : array_like [obs_id]
        The input of each observation, in any order.
    num_sds : float
        Half-width of the bands in standard deviations: epistemic for the inner band, total for the outer band.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``mean``, ``epistemic_band``, ``total_band``, ``observed``, ``title``,
        ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If the numbers of inputs and observations differ.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_function(example_tree("regression"), np.arange(7.0), backend="none")
    >>> "total_band" in plot.viz.children
    True
    """
    inputs = np.asarray(x, float).ravel()
    order = np.argsort(inputs, kind="stable")
    found = of_each(data, lambda tree: _bands(tree, len(inputs)).isel(obs_id=order))
    means = curves({name: (inputs[order], one["mean"].values) for name, one in found.items()})
    collection = new_collection(means, plot_collection, backend, pc_kwargs, facet=True)
    for name, alpha in (("total_band", 0.15), ("epistemic_band", 0.35)):
        edges = {}
        for key, one in found.items():
            mean, half = one["mean"].values, num_sds * one[name].values
            edges[key] = np.stack([inputs[order], mean - half, mean + half])
        draw_band(collection, name, bands(edges), visuals, {"alpha": alpha})
    draw_line(collection, "mean", means, visuals, {})
    draw_observed(collection, observed, found, visuals)
    draw_labels(collection, means, visuals, "x", "y")
    draw_titles(collection, means, visuals)
    return collection


def _bands(tree: xr.DataTree, rows: int) -> xr.Dataset:
    mean = moment(tree, "mean").mean(SAMPLE_DIMS)
    if mean.dims != ("obs_id",) or mean.size != rows:
        raise ValueError(
            f"There are {rows} inputs x, but predictions with sizes {dict(mean.sizes)}: give one input per observation."
        )
    total = total_variance(tree)
    epistemic = epistemic_variance(tree)
    sds = {"total_band": total**0.5, "epistemic_band": epistemic**0.5}
    return xr.Dataset({"mean": mean} | sds)
