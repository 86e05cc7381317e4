"""Comparison of inference methods: scores, figures and a self-contained HTML page, of a table or of any trees."""

from bnnzoo.apps.reporting.comparison import Comparison, compare, model_for
from bnnzoo.apps.reporting.pages import render
from bnnzoo.apps.reporting.report import report
from bnnzoo.apps.reporting.results import Fitted

__all__ = ["Comparison", "Fitted", "compare", "model_for", "render", "report"]
