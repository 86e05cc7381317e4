"""Comparison of inference methods: scores, figures and a self-contained HTML page, of a table or of any trees."""

from bnnzoo.reporting.comparison_page import render
from bnnzoo.reporting.methods import Comparison, compare, model_for
from bnnzoo.reporting.report import report
from bnnzoo.reporting.results import Fitted

__all__ = ["Comparison", "Fitted", "compare", "model_for", "render", "report"]
