"""Figure of how the chains of a sampler went: trace, ranks and energy."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

from bnnzoo.apps.reporting.results import Fitted
from bnnzoo.apps.reporting.style import INK, MUTED, PALETTE, clean, new_figure

__all__ = ["has_chains", "plot_chains"]

NUM_BINS = 20


def has_chains(fitted: Fitted) -> bool:
    """Tell whether a tree of the training data has everything that the figure shows, several draws of each chain included."""
    posterior = fitted.train.children.get("posterior")
    return fitted.is_chain and posterior is not None and posterior.sizes.get("draw", 1) > 1


def plot_chains(fitted: Fitted) -> Figure:
    """Plot the trace and the ranks of the first scalar site, and the energy where the sampler has one."""
    stats = fitted.stats()
    name, draws = _first_scalar(fitted.train["posterior"].to_dataset())
    has_energy = "energy" in stats and stats.sizes["draw"] > 2
    figure, panels = new_figure(2 + has_energy, height=2.8)
    for chain, values in enumerate(draws):
        panels[0].plot(values, color=PALETTE[chain % len(PALETTE)], linewidth=0.6, alpha=0.8)
    clean(panels[0], f"Trace of {name}", "draw")
    _ranks(panels[1], draws)
    clean(panels[1], f"Ranks of {name}", "rank among all chains", "draws")
    if has_energy:
        _energy(panels[2], stats["energy"].transpose("chain", "draw").to_numpy())
    return figure


def _first_scalar(posterior: xr.Dataset) -> tuple[str, np.ndarray]:
    name = next((str(name) for name, values in posterior.data_vars.items() if values.ndim == 2), None)
    if name is None:
        name = str(next(iter(posterior.data_vars)))
        values = posterior[name].transpose("chain", "draw", ...).to_numpy()
        return name, values.reshape(*values.shape[:2], -1)[..., 0]
    return name, posterior[name].transpose("chain", "draw").to_numpy()


def _ranks(axes: Axes, draws: np.ndarray) -> None:
    ranks = rankdata(draws).reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, min(NUM_BINS, draws.shape[1]) + 1)
    for chain, values in enumerate(ranks):
        counts, _ = np.histogram(values, edges)
        axes.stairs(counts, edges, color=PALETTE[chain % len(PALETTE)], linewidth=1.4)
    axes.axhline(draws.shape[1] / (len(edges) - 1), color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_ylim(0, None)


def _energy(axes: Axes, energy: np.ndarray) -> None:
    marginal, change = energy - energy.mean(1, keepdims=True), np.diff(energy, axis=1)
    edges = np.histogram_bin_edges(np.concatenate([marginal.ravel(), change.ravel()]), 30)
    axes.hist(marginal.ravel(), edges.tolist(), density=True, color=PALETTE[0], alpha=0.35, label="energy")
    axes.hist(change.ravel(), edges.tolist(), density=True, histtype="step", color=INK, label="change per transition")
    axes.set_yticks([])
    axes.set_ylim(0, 1.45 * axes.get_ylim()[1])
    axes.legend(loc="upper right", fontsize=8)
    clean(axes, "Energy", "energy minus its mean")
