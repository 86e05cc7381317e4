"""Convergence diagnostics in function space, comparison of posteriors, and importance weights of approximations."""

from bnnzoo.diagnostics.compare_posteriors import compare_posteriors
from bnnzoo.diagnostics.convergence import convergence
from bnnzoo.diagnostics.elbo import elbo
from bnnzoo.diagnostics.function_space import function_space, function_values
from bnnzoo.diagnostics.loo import UnreliableLooWarning, loo
from bnnzoo.diagnostics.pareto import PoorApproximationWarning, psis, psis_resample
from bnnzoo.diagnostics.prior_functions import prior_functions

__all__ = [
    "PoorApproximationWarning",
    "UnreliableLooWarning",
    "compare_posteriors",
    "convergence",
    "elbo",
    "function_space",
    "function_values",
    "loo",
    "prior_functions",
    "psis",
    "psis_resample",
]
