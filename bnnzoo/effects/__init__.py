"""Marginal effects with all draws: predictions, comparisons and slopes, in the vocabulary of marginaleffects."""

from bnnzoo.effects.accumulated import accumulated, individual
from bnnzoo.effects.comparisons import avg_comparisons, avg_slopes, comparisons, slopes
from bnnzoo.effects.effect_estimates import Effects
from bnnzoo.effects.grids import datagrid
from bnnzoo.effects.hypotheses import hypotheses
from bnnzoo.effects.predictions import avg_predictions, predictions

__all__ = [
    "Effects",
    "accumulated",
    "avg_comparisons",
    "avg_predictions",
    "avg_slopes",
    "comparisons",
    "datagrid",
    "hypotheses",
    "individual",
    "predictions",
    "slopes",
]
