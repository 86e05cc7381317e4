"""Likelihoods: callables ``likelihood(output, y)`` that sample or observe the target given a network's output.

Each opens the plate ``"data"`` over observations, samples the site ``"y"``, and checks the target's type, shape and range.
"""

from bnnzoo.models.likelihoods.discrete import bernoulli, categorical, poisson
from bnnzoo.models.likelihoods.likelihood import Likelihood
from bnnzoo.models.likelihoods.real import (
    gaussian,
    heteroscedastic_gaussian,
    heteroscedastic_laplace,
    laplace,
    student_t,
)

__all__ = [
    "Likelihood",
    "bernoulli",
    "categorical",
    "gaussian",
    "heteroscedastic_gaussian",
    "heteroscedastic_laplace",
    "laplace",
    "poisson",
    "student_t",
]
