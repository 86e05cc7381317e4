"""Several inference methods on one table, as numbers, pictures and one self-contained page."""

from bnnzoo.report.methods import Comparison, Fitted, compare, model_for
from bnnzoo.report.page import render

__all__ = ["Comparison", "Fitted", "compare", "model_for", "render"]
