"""Diagnostics of posteriors in function space."""

from bnnzoo.diagnostics.compare_posteriors import compare_posteriors
from bnnzoo.diagnostics.convergence import convergence
from bnnzoo.diagnostics.function_space import function_space, function_values

__all__ = ["compare_posteriors", "convergence", "function_space", "function_values"]
