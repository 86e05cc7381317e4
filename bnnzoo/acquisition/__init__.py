"""Active learning: acquisition functions and expected information gain."""

from bnnzoo.acquisition.bald import Batch, bald, batch_bald, max_entropy, select
from bnnzoo.acquisition.eig import eig_linear_gaussian, eig_nested_monte_carlo, epig

__all__ = [
    "Batch",
    "bald",
    "batch_bald",
    "eig_linear_gaussian",
    "eig_nested_monte_carlo",
    "epig",
    "max_entropy",
    "select",
]
