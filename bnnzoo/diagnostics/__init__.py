"""Convergence diagnostics in function space, comparison of posteriors, and importance weights of approximations."""

from bnnzoo.diagnostics.compare_posteriors import PosteriorDistances, compare_posteriors
from bnnzoo.diagnostics.compare_scores import compare_scores
from bnnzoo.diagnostics.comparison_verdict import Finding, Verdict, Verdicts
from bnnzoo.diagnostics.convergence import convergence
from bnnzoo.diagnostics.distinct_modes import function_modes
from bnnzoo.diagnostics.elbo_estimate import elbo
from bnnzoo.diagnostics.function_space import function_space, function_values
from bnnzoo.diagnostics.loo import UnreliableLooWarning, loo
from bnnzoo.diagnostics.pareto_smoothing import PoorApproximationWarning, psis, psis_resample
from bnnzoo.diagnostics.prior_functions import prior_functions
from bnnzoo.diagnostics.symmetry import canonical_weights, match_weights, weight_rhat
from bnnzoo.diagnostics.verdicts import verdicts

__all__ = [
    "Finding",
    "PoorApproximationWarning",
    "PosteriorDistances",
    "UnreliableLooWarning",
    "Verdict",
    "Verdicts",
    "canonical_weights",
    "compare_posteriors",
    "compare_scores",
    "convergence",
    "elbo",
    "function_modes",
    "function_space",
    "function_values",
    "loo",
    "match_weights",
    "prior_functions",
    "psis",
    "psis_resample",
    "verdicts",
    "weight_rhat",
]
