"""Plots of effects: predictions, comparisons and slopes along a variable, or each with its interval."""

from typing import Any, Protocol

import numpy as np
import pandas as pd
import xarray as xr
from arviz_plots.plot_collection import PlotCollection, backend_from_object
from numpy.typing import ArrayLike, NDArray

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
    draw_once,
    draw_points,
    new_collection,
)
from bnnzoo.trees import refuse_no_probability, refuse_other_kind

__all__ = ["HasTree", "plot_comparisons", "plot_predictions", "plot_slopes"]

type Array = NDArray[np.floating[Any]]

FEW_VALUES = 6
"""Different numbers up to which they are drawn as points with intervals, and not as a curve."""


class HasTree(Protocol):
    """Effects, or whatever returns their draws as a tree."""

    def to_tree(self) -> xr.DataTree:
        """Return a tree with one group, whose variable ``estimate`` has dims chain, draw and effect."""
        ...


@with_shared_entries(PLOT)
def plot_predictions(
    effects: HasTree | xr.DataTree,
    x: str,
    hue: str | None = None,
    *,
    prob: float = 0.95,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot expected outcomes along a variable, with intervals.

    Parameters
    ----------
    effects : Effects or DataTree
        Of `bnnzoo.effects.predictions` at values of the variable, such as ``variables={"dose": grid}`` averaged ``by="dose"``;
        or its tree. Effects with equal values of `x` and `hue` are averaged.
    x : str
        Variable along the axis.
    hue : str, optional
        Variable with colours, such as ``"group"``.
    prob : float
        Of the intervals.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``band``, ``points``, ``interval``, ``observed``, ``ref_line``,
        ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If the effects have no such variable.

    Examples
    --------
    >>> draws = xr.Dataset({"estimate": (("chain", "draw", "effect"), np.ones((1, 9, 3)))}, {"dose": ("effect", [0.0, 1.0, 2.0])})
    >>> plot = plot_predictions(xr.DataTree.from_dict({"predictions": draws}), "dose", backend="none")
    >>> "points" in plot.viz.children
    True
    """
    return _along(
        effects, x, hue, "expected outcome", prob, None, observed, plot_collection, backend, visuals, pc_kwargs
    )


@with_shared_entries(PLOT)
def plot_comparisons(
    effects: HasTree | xr.DataTree,
    x: str | None = None,
    hue: str | None = None,
    *,
    prob: float = 0.95,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot comparisons: one below the other, or along a variable.

    Parameters
    ----------
    effects : Effects or DataTree
        Of `bnnzoo.effects.comparisons` or `bnnzoo.effects.hypotheses`, or its tree.
    x, hue : str, optional
        Variables along the axis and with colours. Without `x` each comparison has a line of its own.
    prob : float
        Of the intervals.
    visuals
        As for `plot_predictions`.

    Examples
    --------
    >>> coords = {"term": ("effect", ["dose", "sex"]), "contrast": ("effect", ["+1", "m - f"])}
    >>> draws = xr.Dataset({"estimate": (("chain", "draw", "effect"), np.ones((1, 9, 2)))}, coords)
    >>> plot = plot_comparisons(xr.DataTree.from_dict({"comparisons": draws}), backend="none")
    >>> "interval" in plot.viz.children
    True
    """
    if x is None:
        return _forest(effects, prob, plot_collection, backend, visuals, pc_kwargs)
    return _along(effects, x, hue, "comparison", prob, 0.0, None, plot_collection, backend, visuals, pc_kwargs)


@with_shared_entries(PLOT)
def plot_slopes(
    effects: HasTree | xr.DataTree,
    x: str | None = None,
    hue: str | None = None,
    *,
    prob: float = 0.95,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot slopes: one below the other, or along a variable.

    Parameters
    ----------
    effects : Effects or DataTree
        Of `bnnzoo.effects.slopes`, or its tree.
    x, hue : str, optional
        Variables along the axis and with colours. Without `x` each slope has a line of its own.
    prob : float
        Of the intervals.
    visuals
        As for `plot_predictions`.

    Examples
    --------
    >>> draws = xr.Dataset({"estimate": (("chain", "draw", "effect"), np.ones((1, 9, 3)))}, {"dose": ("effect", [0.0, 1.0, 2.0])})
    >>> plot = plot_slopes(xr.DataTree.from_dict({"slopes": draws}), "dose", backend="none")
    >>> "ref_line" in plot.viz.children
    True
    """
    if x is None:
        return _forest(effects, prob, plot_collection, backend, visuals, pc_kwargs)
    return _along(effects, x, hue, "slope", prob, 0.0, None, plot_collection, backend, visuals, pc_kwargs)


def _along(
    effects: HasTree | xr.DataTree,
    x: str,
    hue: str | None,
    label: str,
    prob: float,
    reference: float | None,
    observed: tuple[ArrayLike, ArrayLike] | None,
    plot_collection: PlotCollection | None,
    backend: str | None,
    visuals: Visuals,
    pc_kwargs: dict[str, Any],
) -> PlotCollection:
    table = _summary(_estimates(effects), [x] if hue is None else [x, hue], prob)
    names = [""] if hue is None else [str(each) for each in pd.unique(table[hue])]
    parts = {name: table if hue is None else table[table[hue].astype(str) == name] for name in names}
    is_number = pd.api.types.is_numeric_dtype(table[x])
    is_curve = is_number and table[x].nunique() > FEW_VALUES
    labels = None if is_number else [str(each) for each in pd.unique(table[x])]
    places = {name: _places(part[x], labels, k, len(names)) for k, (name, part) in enumerate(parts.items())}
    middle = curves({name: (places[name], part["estimate"].to_numpy()) for name, part in parts.items()})
    collection = new_collection(middle, plot_collection, backend, pc_kwargs)
    if reference is not None:
        ends = np.array([min(each.min() for each in places.values()), max(each.max() for each in places.values())])
        line = curves(dict.fromkeys(names, (ends, np.full(2, reference))))
        draw_line(collection, "ref_line", line, visuals, {"color": "gray", "linestyle": "C1"})
    if is_curve:
        edges = {name: np.stack([places[name], part["low"], part["high"]]) for name, part in parts.items()}
        length = max(each.shape[1] for each in edges.values())
        padded = {
            name: np.pad(each, ((0, 0), (0, length - each.shape[1])), mode="edge") for name, each in edges.items()
        }
        draw_band(collection, "band", bands(padded), visuals, {})
        draw_line(collection, "line", middle, visuals, {})
    else:
        ends_of = {name: _bars(places[name], part["low"], part["high"]) for name, part in parts.items()}
        draw_line(collection, "interval", curves(ends_of), visuals, {})
        draw_points(collection, "points", middle, visuals, {})
    draw_observed(collection, observed, names, visuals)
    draw_labels(collection, middle, visuals, x, label)
    if labels is not None:
        draw_once(
            collection, _name_ticks, "ticks", middle.isel(model=0, drop=True), visuals, {"names": labels, "axis": "x"}
        )
    if hue is not None and plot_collection is None and len(names) > 1:
        collection.add_legend("model", title=hue)
    return collection


def _forest(
    effects: HasTree | xr.DataTree,
    prob: float,
    plot_collection: PlotCollection | None,
    backend: str | None,
    visuals: Visuals,
    pc_kwargs: dict[str, Any],
) -> PlotCollection:
    array = _estimates(effects)
    words = [name for name in ("term", "contrast", "group") if name in array.coords]
    words += [str(name) for name in array.coords if name not in (*words, "chain", "draw", "effect")][:2]
    names = [" ".join(str(array[word].to_numpy()[row]) for word in words) for row in range(array.sizes["effect"])]
    table = _summary(array.assign_coords(row=("effect", np.arange(len(names)))), ["row"], prob)
    heights = np.arange(len(names), 0, -1.0)
    middle = curves({"": (table["estimate"].to_numpy(), heights)})
    collection = new_collection(middle, plot_collection, backend, pc_kwargs)
    zero = curves({"": (np.zeros(2), np.array([0.5, len(names) + 0.5]))})
    draw_line(collection, "ref_line", zero, visuals, {"color": "gray", "linestyle": "C1"})
    ends = _bars(heights, table["low"], table["high"])
    draw_line(collection, "interval", curves({"": (ends[1], ends[0])}), visuals, {"width": 2})
    draw_points(collection, "points", middle, visuals, {})
    draw_labels(collection, middle, visuals, "effect", "")
    panel = middle.isel(model=0, drop=True)
    draw_once(collection, _name_ticks, "ticks", panel, visuals, {"names": names, "axis": "y"})
    return collection


def _estimates(effects: HasTree | xr.DataTree) -> xr.DataArray:
    if not hasattr(effects, "to_tree"):
        refuse_other_kind(
            effects, xr.DataTree, "effects", "what a function of bnnzoo.effects returns, or its to_tree()"
        )
    tree = effects if isinstance(effects, xr.DataTree) else effects.to_tree()
    groups = [group for group in tree.children.values() if "estimate" in group.data_vars]
    if len(groups) != 1:
        raise ValueError("The tree holds no effects: make it with bnnzoo.effects, such as predictions(...).to_tree().")
    found: xr.DataArray = groups[0].to_dataset()["estimate"]
    return found


def _summary(array: xr.DataArray, names: list[str], prob: float) -> pd.DataFrame:
    """Return the median and interval of effects, averaged over those with equal values of some variables."""
    refuse_no_probability(prob)
    for name in names:
        if name not in array.coords:
            known = [str(each) for each in array.coords if each not in ("chain", "draw", "effect")]
            raise ValueError(f"The effects have no variable {name!r}; they have {', '.join(known) or 'none'}.")
    table = pd.DataFrame({name: array[name].to_numpy() for name in names})
    grouped = table.groupby(names, sort=False)
    cells = grouped.ngroup().to_numpy()
    values = array.to_numpy().reshape(-1, len(table))
    matrix = np.zeros((len(table), grouped.ngroups))
    matrix[np.arange(len(table)), cells] = 1.0
    means = values @ (matrix / matrix.sum(0))
    first = table.iloc[[int(np.flatnonzero(cells == cell)[0]) for cell in range(grouped.ngroups)]].reset_index(
        drop=True
    )
    low, middle, high = np.quantile(means, [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0)
    found = first.assign(estimate=middle, low=low, high=high)
    return found.sort_values(names[0], kind="stable") if pd.api.types.is_numeric_dtype(found[names[0]]) else found


def _places(values: "pd.Series[Any]", labels: list[str] | None, number: int, count: int) -> Array:
    if labels is None:
        return values.to_numpy(dtype=float)
    shift = (number - (count - 1) / 2) * 0.5 / count
    return np.array([labels.index(str(each)) + shift for each in values], dtype=float)


def _bars(x: Array, low: "pd.Series[Any]", high: "pd.Series[Any]") -> tuple[Array, Array]:
    """Return intervals as one line with gaps: x and y ``[3 N]``."""
    gap = np.full(len(x), np.nan)
    return np.stack([x, x, gap], -1).ravel(), np.stack([low, high, gap], -1).ravel()


def _name_ticks(data: xr.DataArray, target: Any, *, names: list[str], axis: str, **kwargs: Any) -> None:
    backend = backend_from_object(target)
    if axis == "x":
        backend.xticks(list(range(len(names))), names, target)
    else:
        backend.yticks(list(range(len(names), 0, -1)), names, target)
        backend.ylim((0.5, len(names) + 0.5), target)
