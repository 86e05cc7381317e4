"""Plots of measures on ArviZ's PlotCollection, with matplotlib, bokeh or plotly."""

from difflib import get_close_matches
from typing import Any

from bnnzoo.plots.effects import plot_comparisons, plot_predictions, plot_slopes
from bnnzoo.plots.embedding import plot_embedding
from bnnzoo.plots.forest import plot_comparison_forest
from bnnzoo.plots.function import plot_function
from bnnzoo.plots.histogram import plot_uncertainty_histogram
from bnnzoo.plots.images import plot_images
from bnnzoo.plots.interval_coverage import plot_coverage
from bnnzoo.plots.maps import grid_inputs, line_inputs, plot_uncertainty_map
from bnnzoo.plots.members import plot_members
from bnnzoo.plots.pool import plot_acquisition
from bnnzoo.plots.posterior_distances import plot_posterior_comparison
from bnnzoo.plots.rank_histograms import plot_ranks
from bnnzoo.plots.reliability import plot_reliability
from bnnzoo.plots.rhat import plot_rhat
from bnnzoo.plots.risk_coverage import plot_risk_coverage
from bnnzoo.plots.simplex import plot_simplex
from bnnzoo.plots.traces import plot_optimisation
from bnnzoo.plots.weights import plot_weights
from bnnzoo.plots.windows import plot_windows

__all__ = [
    "grid_inputs",
    "line_inputs",
    "plot_acquisition",
    "plot_comparison_forest",
    "plot_comparisons",
    "plot_coverage",
    "plot_embedding",
    "plot_function",
    "plot_images",
    "plot_members",
    "plot_optimisation",
    "plot_posterior_comparison",
    "plot_predictions",
    "plot_ranks",
    "plot_reliability",
    "plot_rhat",
    "plot_risk_coverage",
    "plot_simplex",
    "plot_slopes",
    "plot_uncertainty_histogram",
    "plot_uncertainty_map",
    "plot_weights",
    "plot_windows",
]


def __getattr__(name: str) -> Any:
    close = [] if name.startswith("_") else get_close_matches(name, __all__, 3, 0.55)
    hint = f"; did you mean {' or '.join(close)}?" if close else f"; it has {', '.join(__all__)}."
    raise AttributeError(f"module 'bnnzoo.plots' has no attribute {name!r}{hint}", name=name)
