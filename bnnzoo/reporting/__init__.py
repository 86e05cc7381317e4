"""Comparison of inference methods on a table: scores, figures and a self-contained HTML page."""

from bnnzoo.reporting.methods import Comparison, Fitted, compare, model_for
from bnnzoo.reporting.page import render

__all__ = ["Comparison", "Fitted", "compare", "model_for", "render"]
