"""The gradient of a log density as the engine takes it."""

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.program import GradientFunction
from bnnzoo.engine.value_and_grad import looped_value_and_grad, single_value_and_grad

__all__ = ["density_gradient"]


def density_gradient(density: LogDensity) -> GradientFunction:
    """Return log joint density and gradient, at one point and at many."""
    single, looped = single_value_and_grad(density.log_joint), looped_value_and_grad(density.log_joint)
    return GradientFunction(single, density.batched_value_and_grad, looped, density.data, density.shared)
