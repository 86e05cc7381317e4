"""Maps of predictions and their uncertainty over two inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_plots.plot_collection import PlotCollection, backend_from_object
from arviz_plots.visuals import labelled_title, labelled_x, labelled_y
from numpy.typing import ArrayLike, NDArray

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, draw_once, figure_settings, of_each, with_size
from bnnzoo.plots.rasters import draw_scale
from bnnzoo.trees import SAMPLE_DIMS, average_probs, first_moment, moment, refuse_other_kind
from bnnzoo.uncertainty import decompose

__all__ = ["grid_inputs", "line_inputs", "plot_uncertainty_map"]

type Array = NDArray[np.floating]

PARTS = ("prediction", "total", "aleatoric", "epistemic")


def grid_inputs(low: Sequence[float], high: Sequence[float], num_points: int = 40) -> Array:
    """Return the points ``[num_points ** 2, 2]`` of a grid between two corners, as inputs for ``predict``.

    Examples
    --------
    >>> grid_inputs((0, 0), (1, 2), 2).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 2.0]]
    """
    for argument, value in (("low", low), ("high", high)):
        refuse_other_kind(value, Sequence | np.ndarray, argument, "two numbers, one for each input")
    x, y = np.meshgrid(*(np.linspace(a, b, num_points) for a, b in zip(low, high, strict=True)))
    return np.column_stack([x.ravel(), y.ravel()])


def line_inputs(first: ArrayLike, second: ArrayLike, num_points: int = 50, extend: float = 0.0) -> tuple[Array, Array]:
    """Return points on the line through two inputs of any dimension, and their places for ``plot_function``.

    Parameters
    ----------
    first, second : array_like [features]
    num_points : int
    extend : float
        How far to go beyond either end, as a fraction of their distance.

    Returns
    -------
    inputs : ndarray [num_points, features]
    places : ndarray [num_points]
        0 at the first and 1 at the second.

    Examples
    --------
    >>> inputs, places = line_inputs([0.0, 0.0], [2.0, 4.0], 3)
    >>> inputs.tolist(), places.tolist()
    ([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]], [0.0, 0.5, 1.0])
    """
    start, end = np.asarray(first, float), np.asarray(second, float)
    places = np.linspace(-extend, 1 + extend, num_points)
    return start + places[:, None] * (end - start), places


@with_shared_entries(PLOT)
def plot_uncertainty_map(
    data: xr.DataTree | Mapping[str, xr.DataTree],
    x: ArrayLike,
    *,
    parts: Sequence[str] = PARTS,
    observed: ArrayLike | None = None,
    cmap: str = "viridis",
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the prediction and its total, aleatoric and epistemic uncertainty over two inputs, a panel for each.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
        Predictions on a grid, such as that of :func:`grid_inputs`. Several trees have a row of panels each.
    x : array_like [obs_id, 2]
        The inputs: all combinations of some values, in any order.
    parts : sequence of {"prediction", "total", "aleatoric", "epistemic"}
        The prediction is the mean, the probability of the second of two classes, or the most probable of several.
    observed : array_like [n, 2], optional
        Inputs of data to plot.
    cmap : str
        Name of a colour map that the backend knows.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``map``, ``scale`` (of the colours, beside each panel), ``observed``,
        ``title``, ``xlabel``, ``ylabel``.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.grid``.

    Raises
    ------
    ValueError
        If the inputs are no grid, or are not as many as the rows, or a part is unknown.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_uncertainty_map(example_tree("regression", num_rows=16), grid_inputs((0, 0), (1, 1), 4), backend="none")
    >>> "map" in plot.viz.children
    True
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"parts names {unknown[0]!r}: write some of {', '.join(PARTS)}.")
    inputs = np.asarray(x, float)
    found = of_each(data, lambda tree: _parts(tree, parts))
    axes, order = _grid(inputs, next(iter(found.values())))
    values = np.stack([[one[part].to_numpy()[order] for part in parts] for one in found.values()])
    values = values.reshape(len(found), len(parts), len(axes[1]), len(axes[0]))
    drawn = xr.Dataset({"map": (("model", "part", "y", "x"), values)}, {"model": list(found), "part": list(parts)})
    if plot_collection is None:
        backend = backend or rcParams["plot.backend"]
        figure = figure_settings(backend, pc_kwargs, shares_axes=True, panels=(len(parts), len(found)))
        plot_collection = PlotCollection.grid(
            drawn, cols=["part"], rows=["model"], backend=backend, figure_kwargs=figure, **pc_kwargs
        )
    filled = {"x": axes[0], "y": axes[1], "cmap": cmap, "scale": _scale(visuals)}
    draw_once(plot_collection, _filled, "map", drawn, visuals, filled)
    if observed is not None:
        points = {"points": np.asarray(observed, float), "color": "black", "size": 8, "alpha": 0.6}
        draw_once(plot_collection, _scatter, "observed", drawn, visuals, with_size(plot_collection, points))
    draw_once(plot_collection, _titled, "title", drawn, visuals, {"several": len(found) > 1})
    outer = {"part": parts[0], "model": list(found)[-1]}  # all panels have the same axes
    draw_once(plot_collection, _labelled_below, "xlabel", drawn, visuals, {"text": "first input", "outer": outer})
    draw_once(plot_collection, _labelled_beside, "ylabel", drawn, visuals, {"text": "second input", "outer": outer})
    return plot_collection


def _parts(tree: xr.DataTree, parts: Sequence[str]) -> xr.Dataset:
    found = decompose(tree) if {*parts} - {"prediction"} else xr.Dataset()
    if first_moment(tree, "probs", "mean") == "mean":
        return found.assign(prediction=moment(tree, "mean").mean(SAMPLE_DIMS))
    probs = average_probs(tree)
    prediction = (
        probs.isel(class_id=1, drop=True) if probs.sizes["class_id"] == 2 else probs.argmax("class_id").astype(float)
    )
    return found.assign(prediction=prediction)


def _grid(inputs: Array, found: xr.Dataset) -> tuple[tuple[Array, Array], NDArray[np.integer]]:
    """Return the values of both inputs, and the order of rows that makes a grid ``[y, x]``."""
    rows = found["prediction"].size if "prediction" in found else next(iter(found.values())).size
    if inputs.shape != (rows, 2):
        raise ValueError(f"x has shape {inputs.shape}, but there are {rows} predictions: give two inputs for each.")
    axes = np.unique(inputs[:, 0]), np.unique(inputs[:, 1])
    if len(axes[0]) * len(axes[1]) != rows:
        raise ValueError(
            f"The inputs are no grid: {len(axes[0])} values of the first and {len(axes[1])} of the second make "
            f"{len(axes[0]) * len(axes[1])} combinations, but there are {rows} rows. Predict at grid_inputs(low, high)."
        )
    return axes, np.lexsort((inputs[:, 0], inputs[:, 1]))


def _filled(
    data: xr.DataArray, target: Any, *, x: Array, y: Array, scale: Mapping[str, Any] | None, **kwargs: Any
) -> Any:
    levels = _levels(data.to_numpy())
    artist = backend_from_object(target).contourf(x, y, data.to_numpy().T, target, levels=levels, **kwargs)
    if scale is not None:
        draw_scale(target, artist, **scale)
    return artist


def _scale(visuals: Visuals) -> Mapping[str, Any] | None:
    """Return the settings of the colour scales, None for none."""
    chosen = (visuals or {}).get("scale", True)
    return chosen if isinstance(chosen, Mapping) else {} if chosen else None


def _levels(values: Array) -> Array:
    low, high = float(values.min()), float(values.max())
    high = high if high > low else low + 1.0
    return np.linspace(low - 1e-6 * (high - low), high, 13)  # bokeh leaves out values equal to the lowest level


def _scatter(data: xr.DataArray, target: Any, *, points: Array, **kwargs: Any) -> Any:
    return backend_from_object(target).scatter(points[:, 0], points[:, 1], target, **kwargs)


def _titled(data: xr.DataArray, target: Any, *, several: bool, **kwargs: Any) -> Any:
    part = str(data["part"].item())
    text = f"{data['model'].item()}\n{part}" if several else part  # one below the other, as panels are narrow
    return labelled_title(data, target, text=text, **kwargs)


def _labelled_below(data: xr.DataArray, target: Any, *, text: str, outer: Mapping[str, str], **kwargs: Any) -> Any:
    is_last = data["model"].item() == outer["model"]
    return labelled_x(data, target, text=text if is_last else "", **kwargs)


def _labelled_beside(data: xr.DataArray, target: Any, *, text: str, outer: Mapping[str, str], **kwargs: Any) -> Any:
    is_first = data["part"].item() == outer["part"]
    return labelled_y(data, target, text=text if is_first else "", **kwargs)
