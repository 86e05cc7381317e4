"""Forest plot of the distances from a reference posterior, with their Monte Carlo floors."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection, backend_from_object
from numpy.typing import NDArray

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, draw_labels, draw_line, draw_points, draw_titles, new_collection
from bnnzoo.trees import refuse_other_kind

__all__ = ["plot_comparison_forest"]

type Array = NDArray[np.floating]


@with_shared_entries(PLOT)
def plot_comparison_forest(
    comparison: xr.Dataset,
    *,
    level: float = 0.5,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot each distance of each model from the reference: mean and central interval over rows, and the floor.

    The gray line of a model is the floor's interval, just below its own, and the gray cross the limit of its mean. A mean to
    the left of its limit is no evidence of a difference.

    Parameters
    ----------
    comparison : Dataset
        From :func:`bnnzoo.diagnostics.compare_posteriors`.
    level : float
        Fraction of the rows in the intervals.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``interval``, ``points``, ``floor``, ``floor_points``, ``limit``,
        ``title``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If the comparison has no distance with a floor.

    Examples
    --------
    >>> from bnnzoo.diagnostics import compare_posteriors
    >>> from bnnzoo.testing import example_tree
    >>> trees = {"nuts": example_tree("regression"), "mfvi": example_tree("regression", seed=1)}
    >>> plot = plot_comparison_forest(compare_posteriors(trees, reference="nuts"), backend="none")
    >>> "floor" in plot.viz.children
    True
    """
    refuse_other_kind(comparison, xr.Dataset, "comparison", "what bnnzoo.diagnostics.compare_posteriors returns")
    metrics = [str(name) for name in comparison.data_vars if f"{name}_floor" in comparison.data_vars]
    if not metrics:
        raise ValueError(
            "The comparison has no distance with a floor: make it with bnnzoo.diagnostics.compare_posteriors."
        )
    own, floor = (
        _intervals(comparison, metrics, suffix, level, shift) for suffix, shift in (("", 0.1), ("_floor", -0.1))
    )
    drawn = own["ends"].to_dataset(name="curve")
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs, facet="metric")
    draw_line(collection, "interval", drawn, visuals, {"width": 2})
    draw_line(collection, "floor", floor["ends"].to_dataset(name="curve"), visuals, {"width": 2, "color": "gray"})
    draw_points(collection, "points", own["middle"].to_dataset(name="curve"), visuals, {})
    draw_points(collection, "floor_points", floor["middle"].to_dataset(name="curve"), visuals, {"color": "gray"})
    models = comparison["model"].values.tolist()
    places = np.full((len(metrics), len(models), 2, 1), np.nan)
    for i, metric in enumerate(metrics):
        found = comparison.get(f"{metric}_limit")
        places[i, :, 0, 0] = np.nan if found is None else found
        places[i, :, 1, 0] = len(models) - np.arange(len(models)) - 0.1
    coords = {"metric": [m.replace("_", " ") for m in metrics], "model": models, "plot_axis": ["x", "y"]}
    limits = xr.DataArray(places, coords, ("metric", "model", "plot_axis", "place")).to_dataset(name="curve")
    draw_points(collection, "limit", limits, visuals, {"color": "gray", "marker": "C1"})
    draw_labels(collection, drawn, visuals, f"from {comparison.attrs.get('reference', 'the reference')}", "")
    first = drawn["metric"].values[0]
    panels = drawn.isel(model=0, drop=True)
    collection.map(_name_heights, "ticks", data=panels, ignore_aes="all", names=models, first=first)
    draw_titles(collection, drawn, visuals, "metric")
    if plot_collection is None:
        collection.add_legend("model")
    return collection


def _name_heights(data: xr.DataArray, target: Any, *, names: list[str], first: str, **kwargs: Any) -> None:
    """Write the names beside the first panel; those of the others would cover the panel before."""
    heights = list(range(len(names), 0, -1))
    backend = backend_from_object(target)
    backend.yticks(heights, names if data["metric"].item() == first else [""] * len(names), target)
    backend.ylim((0.5, len(names) + 0.5), target)


def _intervals(comparison: xr.Dataset, metrics: list[str], suffix: str, level: float, shift: float) -> xr.Dataset:
    """Return ends and means ``[metric, model, plot_axis, point]`` of the values of all rows, one height for each model."""
    models = comparison["model"].values.tolist()
    ends, middle = np.empty((len(metrics), len(models), 2, 2)), np.empty((len(metrics), len(models), 2, 1))
    for i, metric in enumerate(metrics):
        for j, model in enumerate(models):
            values = comparison[f"{metric}{suffix}"].sel(model=model).to_numpy().ravel()
            ends[i, j] = np.nanquantile(values, [(1 - level) / 2, (1 + level) / 2]), np.full(2, len(models) - j + shift)
            middle[i, j] = [np.nanmean(values)], [len(models) - j + shift]
    dims, coords = ("metric", "model", "plot_axis"), {"metric": [m.replace("_", " ") for m in metrics], "model": models}
    parts = {"ends": ((*dims, "point"), ends), "middle": ((*dims, "place"), middle)}
    return xr.Dataset(parts, coords | {"plot_axis": ["x", "y"]})
