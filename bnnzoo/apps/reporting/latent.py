"""Figure of the posterior of latent sites that are not network weights."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.style import clean, colours, new_figure

__all__ = ["has_latent_sites", "plot_latent_sites"]

MAX_PANELS = 6


def has_latent_sites(results: Results) -> bool:
    """Tell whether there is a number to show that all methods have."""
    return bool(_sites(results))


def plot_latent_sites(results: Results) -> Figure:
    """Plot the median, interquartile range and central 90% of each scalar site and method."""
    groups = {one.name: one.train["posterior"].to_dataset() for one in results.fitted if _has_posterior(one)}
    sites = _sites(results)
    figure, panels = new_figure(min(len(sites), MAX_PANELS), height=1.3 + 0.4 * len(groups))
    colour = colours(one.name for one in results.fitted)
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


def _has_posterior(fitted: Fitted) -> bool:
    return "posterior" in fitted.train.children


def _sites(results: Results) -> list[str]:
    """Return the scalar sites that all methods with a posterior have."""
    groups = [one.train["posterior"].to_dataset() for one in results.fitted if _has_posterior(one)]
    named = [[str(name) for name, values in group.data_vars.items() if values.ndim == 2] for group in groups]
    return [name for name in named[0] if all(name in other for other in named)] if named else []


def _quantiles(draws: xr.DataArray) -> np.ndarray:
    return np.quantile(draws.to_numpy(), [0.05, 0.25, 0.5, 0.75, 0.95])
