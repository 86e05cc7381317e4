"""Figure of how optimisations went."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.style import clean, colours, new_figure

__all__ = ["has_traces", "plot_traces"]

MAX_POINTS = 400
MAX_MEMBERS = 10


def has_traces(results: Results) -> bool:
    """Tell whether any method recorded its objective."""
    return any(_trace(one) is not None for one in results.fitted)


def plot_traces(results: Results) -> Figure:
    """Plot the ELBO or the loss of each optimisation against its step, a line for each restart or member."""
    found = {one.name: trace for one in results.fitted if (trace := _trace(one)) is not None}
    figure, panels = new_figure(len(found), height=2.8)
    colour = colours(one.name for one in results.fitted)
    for axes, (name, trace) in zip(panels, found.items(), strict=True):
        values = trace.transpose(..., "step").to_numpy().reshape(-1, trace.sizes["step"])[:MAX_MEMBERS]
        steps = np.unique(np.linspace(0, values.shape[1] - 1, min(MAX_POINTS, values.shape[1])).round().astype(int))
        for line in values:
            axes.plot(steps, line[steps], color=colour[name], linewidth=0.8, alpha=0.8)
        shown = values[:, values.shape[1] // 10 :]  # the first steps would set the scale of the axis
        if np.isfinite(shown).any():
            low, high = np.nanquantile(shown[np.isfinite(shown)], [0.01, 1.0])
            axes.set_ylim(low - 0.15 * (high - low) - 1e-9, high + 0.15 * (high - low) + 1e-9)
        clean(axes, name, "step", str(trace.name))
    return figure


def _trace(fitted: Fitted) -> xr.DataArray | None:
    if "fit_stats" not in fitted.train.children:
        return None
    stats = fitted.train["fit_stats"].to_dataset()
    return next((stats[name] for name in ("elbo", "loss") if name in stats and "step" in stats[name].dims), None)
