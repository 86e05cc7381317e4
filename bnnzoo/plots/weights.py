"""Weights of two methods against each other."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
from numpy.typing import NDArray

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, curves, draw_labels, draw_line, draw_points, new_collection
from bnnzoo.trees import SAMPLE_DIMS, refuse_other_kind

__all__ = ["plot_weights"]

type Array = NDArray[np.floating]


@with_shared_entries(PLOT)
def plot_weights(
    data: Mapping[str, xr.DataTree | xr.Dataset],
    *,
    statistic: Literal["mean", "sd"] = "mean",
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the posterior mean, or standard deviation, of every weight under one method against that under another.

    Hidden units of two fits have nothing to do with each other unless they start from one mode, as Laplace and SWAG may:
    otherwise match them first, with :func:`bnnzoo.diagnostics.match_weights`.

    Parameters
    ----------
    data : mapping of str to DataTree or Dataset
        Two trees with the group ``weights``, or two such groups.
    statistic : {"mean", "sd"}
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``points``, ``ref_line``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If there are not two trees, they have no weights, or weights of other shapes.

    Examples
    --------
    >>> group = xr.Dataset({"w": (("chain", "draw", "i"), np.random.default_rng(0).normal(size=(1, 9, 4)))})
    >>> plot = plot_weights({"nuts": group, "mfvi": 2 * group}, statistic="sd", backend="none")
    >>> "points" in plot.viz.children
    True
    """
    refuse_other_kind(data, Mapping, "data", "two trees by name, as in {name: tree, other: tree}")
    if len(data) != 2:
        raise ValueError(
            f"plot_weights compares two methods, but there are {len(data)}: pass {{name: tree, other: tree}}."
        )
    if statistic not in ("mean", "sd"):
        raise ValueError(f"statistic={statistic!r}: write 'mean' or 'sd'.")
    (first, one), (second, other) = ((name, _summary(name, tree, statistic)) for name, tree in data.items())
    if one.shape != other.shape:
        raise ValueError(f"{first!r} has {one.size} weights and {second!r} {other.size}: compare fits of one network.")
    drawn = curves({f"{first} and {second}": (one, other)})
    ends = np.array([min(one.min(), other.min()), max(one.max(), other.max())])
    diagonal = curves({"diagonal": (ends, ends)}).isel(model=0, drop=True)
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_line(collection, "ref_line", diagonal, visuals, {"color": "gray", "linestyle": "C1"})
    draw_points(collection, "points", drawn, visuals, {"alpha": 0.6})
    draw_labels(collection, drawn, visuals, f"{statistic} under {first}", f"{statistic} under {second}")
    return collection


def _summary(name: str, data: xr.DataTree | xr.Dataset, statistic: str) -> Array:
    if isinstance(data, xr.DataTree):
        if "weights" not in data.children:
            raise ValueError(f"The tree {name!r} has no group 'weights': make it with weights=True.")
        data = data["weights"].to_dataset()
    found = data.mean(SAMPLE_DIMS) if statistic == "mean" else data.std(SAMPLE_DIMS)
    return np.concatenate([found[variable].to_numpy().ravel() for variable in sorted(map(str, found.data_vars))])
