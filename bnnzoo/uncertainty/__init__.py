"""Uncertainty of predictions: total, aleatoric and epistemic, from the draws' moments of p(y | x, theta)."""

from bnnzoo.uncertainty.decompose import decompose
from bnnzoo.uncertainty.entropy import (
    entropies,
    entropy,
    expected_entropy,
    jensen_shannon,
    mutual_information,
    pairwise_kl,
    predictive_entropy,
)
from bnnzoo.uncertainty.variance import aleatoric_variance, epistemic_variance, total_variance

__all__ = [
    "aleatoric_variance",
    "decompose",
    "entropies",
    "entropy",
    "epistemic_variance",
    "expected_entropy",
    "jensen_shannon",
    "mutual_information",
    "pairwise_kl",
    "predictive_entropy",
    "total_variance",
]
