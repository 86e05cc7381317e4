"""Likelihoods: callables ``likelihood(output, y)`` that sample or observe the target given a network's output.

Each opens the plate ``"data"`` over observations, samples the site ``"y"``, and checks the target's type, shape and range.
All take ``offset``, and those of event times ``censored``; `bnnzoo.models.supervised` passes them on.
"""

from bnnzoo.models.likelihoods.counts import (
    negative_binomial,
    zero_inflated_negative_binomial,
    zero_inflated_poisson,
)
from bnnzoo.models.likelihoods.discrete import bernoulli, categorical, poisson
from bnnzoo.models.likelihoods.joint import gaussian_mixture, multivariate_gaussian
from bnnzoo.models.likelihoods.likelihood import Likelihood
from bnnzoo.models.likelihoods.ordinal import ordinal
from bnnzoo.models.likelihoods.positive import beta, gamma, log_normal, weibull
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
    "beta",
    "categorical",
    "gamma",
    "gaussian",
    "gaussian_mixture",
    "heteroscedastic_gaussian",
    "heteroscedastic_laplace",
    "laplace",
    "log_normal",
    "multivariate_gaussian",
    "negative_binomial",
    "ordinal",
    "poisson",
    "student_t",
    "weibull",
    "zero_inflated_negative_binomial",
    "zero_inflated_poisson",
]
