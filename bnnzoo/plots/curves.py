"""Curves of one or several models in one panel: the shared parts of the plots."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_plots.plot_collection import PlotCollection
from arviz_plots.visuals import fill_between_y, labelled_title, labelled_x, labelled_y, line_xy, scatter_xy
from numpy.typing import ArrayLike, NDArray

from bnnzoo.trees import refuse_other_kind

__all__ = [
    "PLOT",
    "Visuals",
    "add_legend",
    "bands",
    "curves",
    "draw_band",
    "draw_labels",
    "draw_line",
    "draw_observed",
    "draw_once",
    "draw_points",
    "draw_titles",
    "figure_settings",
    "new_collection",
    "of_each",
    "with_size",
]

PLOT = """What every plot takes and returns.

Parameters
----------
plot_collection : PlotCollection, optional
backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
    Default: ArviZ's.
observed : pair of array_like, optional
    x and y of data to plot.
**pc_kwargs
    Passed to ``arviz_plots.PlotCollection.wrap``.

Returns
-------
PlotCollection
"""

type Visuals = Mapping[str, Mapping[str, Any] | bool] | None
PANEL_WIDTH, PANEL_HEIGHT = 3.2, 2.8  # inches
HUES = ("group", "model")  # dims whose entries may have colours

type Points = tuple[NDArray[np.floating], NDArray[np.floating]]


def of_each[R](data: xr.DataTree | Mapping[str, xr.DataTree], function: Callable[[xr.DataTree], R]) -> dict[str, R]:
    """Apply a function to one tree, or to each of several named trees.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
    function : callable
    """
    if isinstance(data, xr.DataTree):  # which is a mapping, too
        return {"prediction": function(data)}
    refuse_other_kind(data, Mapping, "data", "a tree, or several by name, as in {'nuts': tree}")
    return {str(name): function(one) for name, one in data.items()}


def curves(points: Mapping[str, Points]) -> xr.Dataset:
    """Return curves ``[model, plot_axis, point]``, padded with NaN.

    Parameters
    ----------
    points : mapping of str to pair of ndarray
        x and y of each model.

    Examples
    --------
    >>> dict(curves({"a": (np.arange(3.0), np.ones(3))}).sizes)
    {'model': 1, 'plot_axis': 2, 'point': 3}
    """
    length = max(len(x) for x, _ in points.values())
    values = np.full((len(points), 2, length), np.nan)
    for row, (x, y) in zip(values, points.values(), strict=True):
        row[0, : len(x)], row[1, : len(x)] = x, y
    dims = ("model", "plot_axis", "point")
    return xr.Dataset({"curve": (dims, values)}, coords={"model": list(points), "plot_axis": ["x", "y"]})


def bands(edges: Mapping[str, NDArray[np.floating]]) -> xr.Dataset:
    """Return bands ``[model, kwarg, point]`` from x, lower and upper edge ``[3, point]`` of each model."""
    coords = {"model": list(edges), "kwarg": ["x", "y_bottom", "y_top"]}
    return xr.Dataset({"curve": (("model", "kwarg", "point"), np.stack(list(edges.values())))}, coords)


def figure_settings(
    backend: str, pc_kwargs: dict[str, Any], *, shares_axes: bool, panels: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the settings of a new figure, those of the caller last, which are taken out of ``pc_kwargs``.

    ``panels`` are columns and rows of nearly square panels.
    """
    figure: dict[str, Any] = {"layout": "constrained"} if backend == "matplotlib" else {}  # makes room for the legend
    if panels is not None and backend == "matplotlib":
        figure["figsize"] = (PANEL_WIDTH * panels[0], PANEL_HEIGHT * panels[1])
    if shares_axes:
        figure |= {"sharex": True, "sharey": True}
    return figure | pc_kwargs.pop("figure_kwargs", {})


def new_collection(
    data: xr.Dataset,
    plot_collection: PlotCollection | None,
    backend: str | None,
    pc_kwargs: dict[str, Any],
    *,
    facet: bool | str = False,
    hue: str | None = None,
) -> PlotCollection:
    """Return the given collection, or a new one with a colour (with ``facet``, a panel) for each model.

    Parameters
    ----------
    data : Dataset
        With a dim ``model``.
    plot_collection : PlotCollection, optional
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
    pc_kwargs : dict
        Passed to ``PlotCollection.wrap``.
    facet : bool or str
        Whether each model has a panel; or the dim that has, and models have colours.
    hue : str, optional
        The dim that has colours, if it is not that of the models.
    """
    if plot_collection is not None:
        return plot_collection
    backend = backend or rcParams["plot.backend"]
    panels = "model" if facet is True else facet
    pc_kwargs.setdefault("cols", [panels] if panels else [])
    if hue or panels != "model":
        pc_kwargs.setdefault("aes", {"color": [hue or "model"]})
    figure = figure_settings(backend, pc_kwargs, shares_axes=panels == "model")
    return PlotCollection.wrap(data, backend=backend, figure_kwargs=figure, **pc_kwargs)


def draw_line(
    collection: PlotCollection, name: str, data: xr.Dataset, visuals: Visuals, defaults: Mapping[str, Any]
) -> None:
    """Draw lines ``[model, plot_axis, point]`` unless ``visuals`` turns them off."""
    _map(collection, line_xy, name, data, visuals, defaults)


def draw_points(
    collection: PlotCollection, name: str, data: xr.Dataset, visuals: Visuals, defaults: Mapping[str, Any]
) -> None:
    """Draw points ``[model, plot_axis, point]`` unless ``visuals`` turns them off; a default size is an area."""
    _map(collection, scatter_xy, name, data, visuals, with_size(collection, defaults))


def with_size(collection: PlotCollection, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of points whose size is their area, as bokeh takes it: the diameter."""
    as_diameter = "size" in defaults and collection.backend == "bokeh"
    return dict(defaults) | ({"size": defaults["size"] ** 0.5} if as_diameter else {})


def draw_band(
    collection: PlotCollection, name: str, data: xr.Dataset, visuals: Visuals, defaults: Mapping[str, Any]
) -> None:
    """Fill between ``y_bottom`` and ``y_top`` along ``x``, of data ``[model, kwarg, point]``, unless turned off."""
    _map(collection, fill_between_y, name, data, visuals, {"alpha": 0.25} | dict(defaults))


def draw_observed(
    collection: PlotCollection, observed: tuple[ArrayLike, ArrayLike] | None, models: Iterable[str], visuals: Visuals
) -> None:
    """Draw x and y of data, if there are any, into the panel of every model."""
    if observed is not None:
        points = (np.asarray(observed[0], float).ravel(), np.asarray(observed[1], float).ravel())
        draw_points(collection, "observed", curves(dict.fromkeys(models, points)), visuals, {"color": "black"})


def draw_once(
    collection: PlotCollection,
    function: Callable[..., Any],
    name: str,
    data: xr.Dataset,
    visuals: Visuals,
    defaults: Mapping[str, Any],
) -> None:
    """Call a function for every panel, whatever colours there are, unless ``visuals`` turns it off."""
    if (wanted := _wanted(visuals, name)) is not None:
        collection.map(function, name, data=data, ignore_aes="all", **dict(defaults) | wanted)


def draw_labels(collection: PlotCollection, data: xr.Dataset, visuals: Visuals, x: str, y: str) -> None:
    """Name the axes."""
    for name, function, text in (("xlabel", labelled_x, x), ("ylabel", labelled_y, y)):
        draw_once(collection, function, name, _of_panels(collection, data), visuals, {"text": text})


def draw_titles(collection: PlotCollection, data: xr.Dataset, visuals: Visuals, dim: str = "model") -> None:
    """Write the name of each model, or of another dim, over its panel."""
    if data.sizes[dim] > 1:
        draw_once(collection, _title, "title", _of_panels(collection, data), visuals, {"dim": dim})


def add_legend(collection: PlotCollection, given: PlotCollection | None, data: xr.Dataset, hue: str = "model") -> None:
    """Name the colours, unless there is one or the collection was given."""
    if data.sizes[hue] > 1 and given is None:
        collection.add_legend(hue)


def _of_panels(collection: PlotCollection, data: xr.Dataset) -> xr.Dataset:
    """Return one entry for each panel."""
    return data.isel({hue: 0 for hue in HUES if hue in data.dims and hue not in collection.facet_dims}, drop=True)


def _title(data: xr.DataArray, target: Any, dim: str = "model", **kwargs: Any) -> Any:
    return labelled_title(data, target, text=str(data[dim].item()), **kwargs)


def _map(
    collection: PlotCollection,
    function: Callable[..., Any],
    name: str,
    data: xr.Dataset,
    visuals: Visuals,
    defaults: Mapping[str, Any],
) -> None:
    if (wanted := _wanted(visuals, name)) is None:
        return
    has_hue = (
        any(dim in data.dims and dim not in collection.facet_dims for dim in HUES) and "color" in collection.aes_set
    )
    fixed = {} if has_hue else {"color": "C0"}
    ignore: Any = frozenset() if has_hue else "all"
    collection.map(function, name, data=data, ignore_aes=ignore, **fixed | dict(defaults) | wanted)


def _wanted(visuals: Visuals, name: str) -> dict[str, Any] | None:
    chosen = (visuals or {}).get(name, True)
    if chosen is False:
        return None
    return {} if chosen is True else dict(chosen)
