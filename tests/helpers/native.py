"""A small target and its gradient as a graph, for tests of chains in native code."""

import torch

from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.inference.markov.native import Gradient, gradient_of
from bnnzoo.testing import linear_gaussian

__all__ = ["GRADIENT", "TARGET", "density", "traced"]

TARGET = linear_gaussian()


def density() -> LogDensity:
    """Return the density of the target, in the precision of the run."""
    return build_density(TARGET.model, *TARGET.data)


def traced(target: LogDensity) -> Gradient:
    """Return the gradient of a density that can be traced."""
    found = gradient_of(target)
    assert found is not None
    return found


GRADIENT = traced(build_density(TARGET.model, *TARGET.data, dtype=torch.float64))
