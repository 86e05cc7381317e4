"""Active learning: acquisition functions and expected information gain."""

from bnnzoo.acquisition.bald import (
    Batch,
    bald,
    batch_bald,
    least_confidence,
    select,
    smallest_margin,
)
from bnnzoo.acquisition.eig import eig_linear_gaussian, eig_nested_monte_carlo, epig

__all__ = [
    "Batch",
    "bald",
    "batch_bald",
    "eig_linear_gaussian",
    "eig_nested_monte_carlo",
    "epig",
    "least_confidence",
    "select",
    "smallest_margin",
]
