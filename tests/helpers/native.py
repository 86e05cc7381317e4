"""A small target, for tests of chains in native code."""

import pytest

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings, LockstepSettings
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinSettings
from bnnzoo.testing import linear_gaussian

__all__ = ["TARGET", "density", "when_native_pays"]

TARGET = linear_gaussian()


def density() -> LogDensity:
    """Return the density of the target, in the precision of the run."""
    return build_density(TARGET.model, *TARGET.data)


def when_native_pays(patch: pytest.MonkeyPatch, pays_from: float) -> None:
    """Let chains move in native code from this many steps on."""
    for settings in (HamiltonianSettings, LockstepSettings, LangevinSettings):
        patch.setattr(settings, "native_pays_from", pays_from)
