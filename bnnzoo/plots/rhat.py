"""R-hat of functions against R-hat of weights."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection

from bnnzoo.diagnostics import function_space, weight_rhat
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, add_legend, curves, draw_labels, draw_line, new_collection

__all__ = ["plot_rhat"]

THRESHOLD = 1.01


@with_shared_entries(PLOT)
def plot_rhat(
    data: xr.DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the distribution of R-hat of predictions, of weights as sampled, and of weights with their hidden units matched.

    Curves show the fraction of predictions, or of weights, whose R-hat is at most r. Chains that agree on the function may
    disagree on every weight, by symmetry.

    Parameters
    ----------
    data : DataTree
        Of Markov chains, with ``conditional``, the group ``weights``, and the attribute ``layers``.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``ref_line`` (at 1.01), ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If there are no weights of known layers, or fewer than two chains.
    """
    weights = weight_rhat(data)
    groups = {
        "predictions": function_space(data)["rhat"].to_numpy(),
        "weights": weights["raw"].to_numpy(),
        "weights, matched": weights["matched"].to_numpy(),
    }
    known = {name: np.sort(values[np.isfinite(values)].ravel()) for name, values in groups.items()}
    drawn = curves({name: (v, np.arange(1, len(v) + 1) / max(1, len(v))) for name, v in known.items()})
    line = curves({"reference": (np.full(2, THRESHOLD), np.array([0.0, 1.0]))}).isel(model=0, drop=True)
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs)
    draw_line(collection, "ref_line", line, visuals, {"color": "gray", "linestyle": "C1"})
    draw_line(collection, "line", drawn, visuals, {})
    draw_labels(collection, drawn, visuals, "R-hat", "fraction at most")
    add_legend(collection, plot_collection, drawn)
    return collection
