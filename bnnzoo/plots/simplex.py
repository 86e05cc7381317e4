"""Draws of the probabilities of three classes in their simplex."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection, backend_from_object
from numpy.typing import NDArray

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import (
    PLOT,
    Visuals,
    curves,
    draw_labels,
    draw_line,
    draw_once,
    draw_points,
    draw_titles,
    new_collection,
)
from bnnzoo.trees import SAMPLE_DIMS, moment, shannon_entropy

__all__ = ["plot_simplex"]

type Array = NDArray[np.floating]

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
CONTOURS = np.log(3) * np.array([0.3, 0.5, 0.7, 0.85, 0.95])


@with_shared_entries(PLOT)
def plot_simplex(
    data: xr.DataTree,
    rows: Sequence[int] = (0,),
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the draws of the probabilities of three classes for some rows, with contours of the entropy.

    Draws together in a corner are certain, together in the middle aleatoric, and apart in different corners epistemic.

    Parameters
    ----------
    data : DataTree
        With ``conditional/probs`` of three classes.
    rows : sequence of int
        Positions of the observations, each of which has a panel.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``points``, ``mean``, ``edge``, ``contour``, ``title``,
        ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If there are not three classes, or there is no such row.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_simplex(example_tree("classification"), rows=[0, 3], backend="none")
    >>> "contour" in plot.viz.children
    True
    """
    probs = moment(data, "probs")
    if probs.sizes["class_id"] != 3:
        raise ValueError(f"A simplex in the plane has three classes, but there are {probs.sizes['class_id']}.")
    if outside := [row for row in rows if not -probs.sizes["obs_id"] <= row < probs.sizes["obs_id"]]:
        raise ValueError(
            f"rows names {outside[0]}, but there are {probs.sizes['obs_id']} observations: write positions."
        )
    names = [str(probs["obs_id"].values[row]) if "obs_id" in probs.coords else str(row) for row in rows]
    chosen = probs.isel(obs_id=list(rows)).transpose(*SAMPLE_DIMS, "obs_id", "class_id").to_numpy()
    places = chosen.reshape(-1, len(rows), 3).swapaxes(0, 1) @ CORNERS
    points = curves({f"row {n}": (place[:, 0], place[:, 1]) for n, place in zip(names, places, strict=True)})
    middle = places.mean(1, keepdims=True)
    means = curves({f"row {n}": (place[:, 0], place[:, 1]) for n, place in zip(names, middle, strict=True)})
    outline = np.vstack([CORNERS, CORNERS[:1]])
    edge = curves(dict.fromkeys(points["model"].values.tolist(), (outline[:, 0], outline[:, 1])))
    collection = new_collection(points, plot_collection, backend, pc_kwargs, facet=True)
    draw_once(collection, _entropy_contours, "contour", points, visuals, {"color": "gray", "alpha": 0.6})
    draw_line(collection, "edge", edge, visuals, {"color": "black"})
    draw_points(collection, "points", points, visuals, {"alpha": 0.5})
    draw_points(collection, "mean", means, visuals, {"color": "C1", "size": 60})
    first, second, third = map(str, probs["class_id"].values)
    draw_labels(collection, points, visuals, f"{first} (left)  to  {second} (right)", f"{third} (top)")
    draw_titles(collection, points, visuals)
    return collection


def _entropy_contours(data: xr.DataArray, target: Any, **kwargs: Any) -> None:
    x, y = np.linspace(0, 1, 80), np.linspace(0, CORNERS[2, 1], 80)
    # the entropy [y, x] in nats inside the simplex, NaN outside
    right, up = np.meshgrid(x, y)
    third = up / CORNERS[2, 1]
    second = right - third / 2
    probs = np.stack([1 - second - third, second, third], axis=-1)
    inside = (probs >= -1e-12).all(-1)
    values = shannon_entropy(xr.DataArray(np.clip(probs, 0, 1), dims=("y", "x", "class_id"))).to_numpy()
    backend_from_object(target).contour(x, y, np.where(inside, values, np.nan).T, target, levels=CONTOURS, **kwargs)
