"""A small target and its gradient as a graph, for tests of chains in native code."""

import pytest
import torch

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings, LockstepSettings
from bnnzoo.inference.markov.lockstep.langevin import LangevinSettings
from bnnzoo.inference.markov.native_gradient import Gradient, gradient_of
from bnnzoo.testing import linear_gaussian

__all__ = ["GRADIENT", "TARGET", "density", "traced", "when_native_pays"]

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


def when_native_pays(patch: pytest.MonkeyPatch, pays_from: float) -> None:
    """Let chains move in native code from this many steps on."""
    for settings in (HamiltonianSettings, LockstepSettings, LangevinSettings):
        patch.setattr(settings, "native_pays_from", pays_from)
