"""Acquisition functions over a pool."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
from numpy.typing import ArrayLike, NDArray

from bnnzoo.acquisition import select
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, add_legend, curves, draw_labels, draw_line, draw_points, new_collection
from bnnzoo.trees import refuse_other_kinds

__all__ = ["plot_acquisition"]


@with_shared_entries(PLOT)
def plot_acquisition(
    scores: xr.DataArray | Mapping[str, xr.DataArray],
    x: ArrayLike | None = None,
    *,
    batch_size: int = 10,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot acquisition scores of a pool, each over its largest value, and the rows that would be selected.

    Parameters
    ----------
    scores : DataArray [obs_id] or mapping of str to DataArray
        Such as ``bald(tree)``, or several by name. Higher means more informative.
    x : array_like [obs_id], optional
        An input of each row. Default: rows in decreasing order of the first score.
    batch_size : int
        How many rows with the highest scores are marked.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``points`` (the selected rows), ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If numbers of rows differ, or there are fewer than ``batch_size``.

    Examples
    --------
    >>> from bnnzoo.acquisition import bald
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_acquisition(bald(example_tree("classification")), batch_size=2, backend="none")
    >>> "points" in plot.viz.children
    True
    """
    refuse_other_kinds(scores, xr.DataArray, "scores", "what an acquisition function returns")
    named = {str(scores.name or "score"): scores} if isinstance(scores, xr.DataArray) else dict(scores)
    places = _places(named, x)
    order = np.argsort(places, kind="stable")
    relative = {
        name: score.to_numpy() / max(float(np.abs(score).max()), np.finfo(float).tiny) for name, score in named.items()
    }
    drawn = curves({name: (places[order].astype(float), values[order]) for name, values in relative.items()})
    chosen = {name: select(score, batch_size) for name, score in named.items()}
    marks = curves({name: (places[rows].astype(float), relative[name][rows]) for name, rows in chosen.items()})
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_line(collection, "line", drawn, visuals, {"alpha": 0.7})
    draw_points(collection, "points", marks, visuals, {})
    label = "rank by the first score" if x is None else "x"
    draw_labels(collection, drawn, visuals, label, "score over its largest value")
    add_legend(collection, plot_collection, drawn)
    return collection


def _places(scores: Mapping[str, xr.DataArray], x: ArrayLike | None) -> NDArray[np.integer | np.floating]:
    """Return where each row stands on the axis, after refusing what is no score for each row."""
    if not scores:
        raise ValueError("scores is empty: pass at least one score, as in {'BALD': bnnzoo.acquisition.bald(tree)}.")
    first = next(iter(scores.values()))
    places = np.arange(*first.shape[:1] or (1,)) if x is None else np.ravel(x).astype(float)
    for name, score in scores.items():
        if score.shape != places.shape:
            raise ValueError(
                f"{name!r} has scores of shape {score.shape}, but there are {len(places)} rows: give one for each."
            )
    return np.argsort(np.argsort(-first.to_numpy(), kind="stable")) if x is None else places
