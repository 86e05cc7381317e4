"""Embeddings of the rows, coloured by class, by error, or by uncertainty."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
from numpy.typing import ArrayLike

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, curves, draw_labels, draw_points, new_collection
from bnnzoo.trees import aligned

__all__ = ["plot_embedding"]

MAX_GROUPS = 10
BINS = ("lowest quarter", "second quarter", "third quarter", "highest quarter")


@with_shared_entries(PLOT)
def plot_embedding(
    embedding: ArrayLike,
    by: xr.DataArray,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot rows in two dimensions, with colours by class, by error, or by quarters of an uncertainty.

    Parameters
    ----------
    embedding : array_like [obs_id, 2]
        Of the inputs or of features of the network, such as two principal components or scikit-learn's t-SNE.
    by : DataArray [obs_id]
        Such as labels, ``misclassified(tree)`` or ``mutual_information(tree)``. Real numbers of more than ten values are
        grouped by their quartiles.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``points``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If the embedding is not two-dimensional, or the numbers of rows differ.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(6, 2))
    >>> plot = plot_embedding(points, xr.DataArray([0, 1, 0, 1, 0, 1], dims="obs_id"), backend="none")
    >>> "points" in plot.viz.children
    True
    """
    places = np.asarray(embedding, float)
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError(f"The embedding has shape {places.shape}: give two coordinates for each row.")
    values = aligned(by, xr.DataArray(np.zeros(len(places)), dims="obs_id"), "by", "the embedding").to_numpy()
    # the rows of each value, or of each quarter of many real values
    known = np.unique(values)
    if values.dtype.kind != "f" or len(known) <= MAX_GROUPS:
        groups = {str(value): values == value for value in known}
    else:
        quarter = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)
        groups = {name: quarter == i for i, name in enumerate(BINS) if (quarter == i).any()}
    drawn = curves({name: (places[rows, 0], places[rows, 1]) for name, rows in groups.items()})
    collection = new_collection(drawn.rename(model="group"), plot_collection, backend, pc_kwargs, hue="group")
    draw_points(collection, "points", drawn.rename(model="group"), visuals, {"alpha": 0.7})
    draw_labels(collection, drawn.rename(model="group"), visuals, "first dimension", "second dimension")
    if plot_collection is None:
        collection.add_legend("group", title=str(by.name or "").replace("_", " "))
    return collection
