"""Figures of fits: chains, optimisations, latent sites, and data drawn from the fitted model."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.style import INK, MUTED, PALETTE, clean, colours, new_figure

__all__ = [
    "has_chains",
    "has_latent_sites",
    "has_replicates",
    "has_traces",
    "plot_chains",
    "plot_latent_sites",
    "plot_predictive_check",
    "plot_traces",
]

NUM_BINS = 20  # of ranks
MAX_POINTS, MAX_MEMBERS = 400, 10  # of the traces of an optimisation
MAX_PANELS = 6  # sites
NUM_REPLICATES = 50  # data sets drawn from the fitted model


def has_chains(fitted: Fitted) -> bool:
    """Tell whether a tree of the training data has everything that the figure shows, several draws of each chain included."""
    posterior = fitted.train.children.get("posterior")
    return fitted.is_chain and posterior is not None and posterior.sizes.get("draw", 1) > 1


def plot_chains(fitted: Fitted) -> Figure:
    """Plot the trace and the ranks of the first scalar site, and the energy where the sampler has one."""
    stats = fitted.stats()
    posterior = fitted.train["posterior"].to_dataset()
    name = next((str(name) for name, values in posterior.data_vars.items() if values.ndim == 2), None)
    name = str(next(iter(posterior.data_vars))) if name is None else name
    draws = posterior[name].transpose("chain", "draw", ...).to_numpy()
    draws = draws.reshape(*draws.shape[:2], -1)[..., 0]
    has_energy = "energy" in stats and stats.sizes["draw"] > 2
    figure, panels = new_figure(2 + has_energy, height=2.8)
    for chain, values in enumerate(draws):
        panels[0].plot(values, color=PALETTE[chain % len(PALETTE)], linewidth=0.6, alpha=0.8)
    clean(panels[0], f"Trace of {name}", "draw")
    ranks = rankdata(draws).reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, min(NUM_BINS, draws.shape[1]) + 1)
    for chain, values in enumerate(ranks):
        counts, _ = np.histogram(values, edges)
        panels[1].stairs(counts, edges, color=PALETTE[chain % len(PALETTE)], linewidth=1.4)
    panels[1].axhline(draws.shape[1] / (len(edges) - 1), color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    panels[1].set_ylim(0, None)
    clean(panels[1], f"Ranks of {name}", "rank among all chains", "draws")
    if has_energy:
        axes = panels[2]
        energy = stats["energy"].transpose("chain", "draw").to_numpy()
        marginal, change = energy - energy.mean(1, keepdims=True), np.diff(energy, axis=1)
        edges = np.histogram_bin_edges(np.concatenate([marginal.ravel(), change.ravel()]), 30)
        axes.hist(marginal.ravel(), edges.tolist(), density=True, color=PALETTE[0], alpha=0.35, label="energy")
        axes.hist(
            change.ravel(), edges.tolist(), density=True, histtype="step", color=INK, label="change per transition"
        )
        axes.set_yticks([])
        axes.set_ylim(0, 1.45 * axes.get_ylim()[1])
        axes.legend(loc="upper right", fontsize=8)
        clean(axes, "Energy", "energy minus its mean")
    return figure


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
            low, lower, median, upper, high = np.quantile(group[site].to_numpy(), [0.05, 0.25, 0.5, 0.75, 0.95])
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


def has_replicates(results: Results) -> bool:
    """Tell whether all trees hold draws of the training data."""
    return any(_is_replicated(fitted) for fitted in results.fitted)


def plot_predictive_check(results: Results) -> Figure:
    """Plot the observed targets of the training part with replicates: histograms, or counts of classes."""
    replicated = [fitted for fitted in results.fitted if _is_replicated(fitted)]
    figure, panels = new_figure(len(replicated), share=True)
    colour = colours(f.name for f in results.fitted)
    data = [_data(fitted) for fitted in replicated]
    if results.classes:
        edges = None
    else:
        # bins for all methods, so that the data look alike beside each
        ends = [np.quantile(replicates, [0.002, 0.998]) for _, replicates in data] + [
            [y.min(), y.max()] for y, _ in data
        ]
        edges = np.linspace(min(low for low, _ in ends), max(high for _, high in ends), 31)
    for axes, fitted, (y, replicates) in zip(panels, replicated, data, strict=True):
        if edges is None:
            _counts(axes, y, replicates, results.classes, colour[fitted.name])
        else:
            _histograms(axes, y, replicates, edges, colour[fitted.name])
        clean(axes, fitted.name, results.target)
    panels[0].set_ylabel("observations")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _is_replicated(fitted: Fitted) -> bool:
    return {"posterior_predictive", "observed_data"} <= {*fitted.train.children}


def _data(fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    (y,) = fitted.train["observed_data"].data_vars.values()
    (draws,) = fitted.train["posterior_predictive"].data_vars.values()
    flat = draws.transpose("chain", "draw", ...).to_numpy().reshape(-1, y.size)
    chosen = flat[np.linspace(0, len(flat) - 1, min(NUM_REPLICATES, len(flat))).astype(int)]
    seen = np.isfinite(y.to_numpy().ravel())
    return y.to_numpy().ravel()[seen], chosen[:, seen]


def _histograms(axes: Axes, y: np.ndarray, replicates: np.ndarray, edges: np.ndarray, colour: str) -> None:
    for i, values in enumerate(replicates):
        label = "replicates of the fitted model" if i == 0 else None
        axes.stairs(np.histogram(values, edges)[0], edges, color=colour, alpha=0.18, linewidth=0.8, label=label)
    axes.stairs(np.histogram(y, edges)[0], edges, color=INK, linewidth=1.8, label="training data")


def _counts(axes: Axes, y: np.ndarray, replicates: np.ndarray, classes: tuple[str, ...], colour: str) -> None:
    places = np.arange(len(classes))
    counts = np.stack([np.bincount(row.astype(int), minlength=len(classes)) for row in replicates])
    low, high = np.quantile(counts, [0.05, 0.95], axis=0)
    axes.bar(places, np.bincount(y.astype(int), minlength=len(classes)), color=INK, alpha=0.2, label="training data")
    middle = counts.mean(0)
    errors = np.stack([middle - low, high - middle])
    axes.errorbar(places, middle, errors, fmt="o", color=colour, capsize=4, label="replicates: mean and 90%")
    axes.set_xticks(places, classes)
    axes.grid(visible=False, axis="x")
