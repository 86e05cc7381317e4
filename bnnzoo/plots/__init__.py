"""Plots of measures on ArviZ's PlotCollection, with matplotlib, bokeh or plotly."""

from bnnzoo.plots.coverage import plot_coverage
from bnnzoo.plots.function import plot_function
from bnnzoo.plots.posterior_distances import plot_posterior_comparison
from bnnzoo.plots.reliability import plot_reliability
from bnnzoo.plots.risk_coverage import plot_risk_coverage

__all__ = ["plot_coverage", "plot_function", "plot_posterior_comparison", "plot_reliability", "plot_risk_coverage"]
