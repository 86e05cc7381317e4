"""The gradient of a log density as the engine takes it."""

from typing import Any

from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.program import GradientFunction
from bnnzoo.engine.value_and_grad import looped_value_and_grad, value_and_grad_of

__all__ = ["density_gradient"]


def density_gradient(density: LogDensity) -> GradientFunction:
    """Return log joint density and gradient, at one point and at many."""

    def single(theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        return value_and_grad_of(lambda leaf: density.log_joint(leaf, *data), theta)

    looped = looped_value_and_grad(density.log_joint)
    return GradientFunction(single, density.batched_value_and_grad, looped, density.data, density.shared)
