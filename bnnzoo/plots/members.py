"""Each member or chain beside the whole."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
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
    draw_titles,
    new_collection,
)
from bnnzoo.trees import SAMPLE_DIMS, moment

__all__ = ["plot_members"]

type Array = NDArray[np.floating]


@with_shared_entries(PLOT)
def plot_members(
    data: xr.DataTree,
    x: ArrayLike,
    *,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    num_sds: float = 2.0,
    max_members: int = 8,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the prediction of all draws along one input, and beside it that of each chain, or of each member of an ensemble.

    The band is that of the total uncertainty: the noise, and the spread of the draws that the panel shows.

    Parameters
    ----------
    data : DataTree
        With ``conditional/mean`` and ``conditional/variance``. If its attribute ``sampling`` is ``"ensemble"`` every draw has
        a panel, otherwise every chain.
    x : array_like [obs_id]
        The input of each observation, in any order.
    num_sds : float
        Half-width of the bands in standard deviations.
    max_members : int
        The first so many have a panel.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``mean``, ``band``, ``observed``, ``title``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If the numbers of inputs and observations differ.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> plot = plot_members(example_tree("regression"), np.arange(7.0), backend="none")
    >>> "band" in plot.viz.children
    True
    """
    inputs = np.asarray(x, float).ravel()
    mean, variance = (moment(data, name).transpose(*SAMPLE_DIMS, ...).to_numpy() for name in ("mean", "variance"))
    if mean.shape[2:] != inputs.shape:
        raise ValueError(
            f"There are {len(inputs)} inputs x, but predictions of shape {mean.shape[2:]}: give one for each."
        )
    order = np.argsort(inputs, kind="stable")
    groups = _groups(mean.shape[:2], data.root.attrs.get("sampling") == "ensemble", max_members)
    moments = {name: _moments(mean[index], variance[index], order) for name, index in groups.items()}
    means = curves({name: (inputs[order], middle) for name, (middle, _) in moments.items()})
    edges = {name: np.stack([inputs[order], m - num_sds * sd, m + num_sds * sd]) for name, (m, sd) in moments.items()}
    collection = new_collection(means, plot_collection, backend, pc_kwargs, facet=True)
    draw_band(collection, "band", bands(edges), visuals, {})
    draw_line(collection, "mean", means, visuals, {})
    draw_observed(collection, observed, moments, visuals)
    draw_labels(collection, means, visuals, "x", "y")
    draw_titles(collection, means, visuals)
    return collection


def _groups(sizes: tuple[int, ...], is_ensemble: bool, most: int) -> dict[str, tuple[Any, ...]]:
    """Return names and indices into ``[chain, draw]`` of all draws and of each member or chain."""
    chains, draws = sizes
    if is_ensemble:
        pairs = ((chain, draw) for chain in range(chains) for draw in range(draws))
        each = [(f"member {i}", (slice(c, c + 1), slice(d, d + 1))) for i, (c, d) in enumerate(pairs)]
    else:
        each = [(f"chain {i}", (slice(i, i + 1), slice(None))) for i in range(chains)]
    return {"all": (slice(None), slice(None))} | dict(each[:most])


def _moments(mean: Array, variance: Array, order: NDArray[np.integer]) -> tuple[Array, Array]:
    """Return mean and standard deviation ``[rows]`` of the mixture of draws ``[chain, draw, rows]``."""
    return mean.mean((0, 1))[order], np.sqrt(variance.mean((0, 1)) + mean.var((0, 1)))[order]
