"""Figure of the posterior of latent sites that are not network weights."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from bnnzoo.reporting.results import Results
from bnnzoo.reporting.style import clean, colours, new_figure

__all__ = ["plot_latent_sites"]

MAX_PANELS = 6


def plot_latent_sites(results: Results) -> Figure:
    """Plot the median, interquartile range and central 90% of each scalar site and method."""
    groups = {fitted.name: fitted.train["posterior"].to_dataset() for fitted in results.fitted}
    sites = [str(name) for name, values in next(iter(groups.values())).data_vars.items() if values.ndim == 2]
    figure, panels = new_figure(min(len(sites), MAX_PANELS), height=1.3 + 0.4 * len(groups))
    colour = colours(groups)
    for axes, site in zip(panels, sites[:MAX_PANELS], strict=True):
        for place, (name, group) in enumerate(groups.items()):
            low, lower, median, upper, high = _quantiles(group[site])
            axes.hlines(place, low, high, color=colour[name], linewidth=1.5)
            axes.hlines(place, lower, upper, color=colour[name], linewidth=5)
            axes.plot(median, place, "o", color="white", markeredgecolor=colour[name], markersize=7, markeredgewidth=2)
        axes.set_yticks(range(len(groups)), list(groups))
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        clean(axes, site, "posterior: median, 50% and 90% intervals")
    return figure


def _quantiles(draws: xr.DataArray) -> np.ndarray:
    return np.quantile(draws.to_numpy(), [0.05, 0.25, 0.5, 0.75, 0.95])
