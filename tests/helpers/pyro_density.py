"""Pyro's own log density of a model at a point of unconstrained space."""

from typing import Any

from pyro import poutine
from torch import Tensor

from bnnzoo.core.model.density import LogDensity

__all__ = ["pyro_log_joint"]


def pyro_log_joint(density: LogDensity, theta: Tensor, model: Any = None) -> Tensor:
    """Return Pyro's log joint density ``[]`` given the constrained values, plus the log-Jacobian of the transforms."""
    values, free = density.constrain(theta), density.unconstrained(theta)
    trace = poutine.trace(poutine.condition(model or density.model, values)).get_trace(*density.data)
    jacobian = sum(s.transform.log_abs_det_jacobian(free[s.name], values[s.name]).sum() for s in density.sites)
    return trace.log_prob_sum() + jacobian
