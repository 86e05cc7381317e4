"""Traces of an optimisation, restarts and members included."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
from numpy.typing import NDArray

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, add_legend, curves, draw_labels, draw_line, new_collection, of_each
from bnnzoo.trees import refuse_other_kind

__all__ = ["plot_optimisation"]

NAMES = ("elbo", "loss")


@with_shared_entries(PLOT)
def plot_optimisation(
    data: xr.DataTree | Mapping[str, xr.DataTree],
    *,
    statistic: str | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the evidence lower bound or the loss of an optimisation against its steps, a line for each restart or member.

    Parameters
    ----------
    data : DataTree or mapping of str to DataTree
        With the group ``fit_stats``. Several trees are drawn in one panel.
    statistic : str, optional
        A variable of ``fit_stats``. Default: ``elbo`` if all trees have it, otherwise ``loss``.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If a tree has no such trace.

    Examples
    --------
    >>> stats = xr.Dataset({"loss": (("chain", "step"), np.exp(-np.arange(20.0))[None])})
    >>> tree = xr.DataTree.from_dict({"fit_stats": stats})
    >>> "line" in plot_optimisation(tree, backend="none").viz.children
    True
    """
    groups = of_each(data, _fit_stats)
    common = [name for name in NAMES if all(name in group for group in groups.values())]
    statistic = statistic or next(iter(common), None)
    for model, group in groups.items():
        if statistic is None or statistic not in group:
            raise ValueError(
                f"The tree {model!r} has no trace {statistic or ' or '.join(NAMES)} in the group 'fit_stats' (it has "
                f"{', '.join(map(str, group.data_vars)) or 'none'}): name one that all trees have, as statistic=."
            )
    drawn = curves({model: _joined(group[str(statistic)]) for model, group in groups.items()})
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_line(collection, "line", drawn, visuals, {"alpha": 0.8})
    draw_labels(collection, drawn, visuals, "step", {"elbo": "ELBO (nats)"}.get(str(statistic), str(statistic)))
    add_legend(collection, plot_collection, drawn)
    return collection


def _fit_stats(tree: xr.DataTree) -> xr.Dataset:
    refuse_other_kind(tree, xr.DataTree, "data", "what bnnzoo.predict returns")
    return tree["fit_stats"].to_dataset() if "fit_stats" in tree.children else xr.Dataset()


def _joined(traces: xr.DataArray) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return traces one after another, with a gap between them."""
    values = traces.transpose(..., "step").to_numpy().reshape(-1, traces.sizes["step"])
    gap = np.full((len(values), 1), np.nan)
    steps = np.broadcast_to(np.arange(values.shape[1], dtype=float), values.shape)
    return np.hstack([steps, gap]).ravel(), np.hstack([values, gap]).ravel()
