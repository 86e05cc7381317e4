"""What chains in lockstep learn during warm-up."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.core.density import build_density
from bnnzoo.inference.markov.adaptation import window_ends
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics, Microcanonical, Newtonian
from bnnzoo.inference.markov.lockstep.loop import EARLY_STEPS, LockstepLoop, LockstepSettings
from bnnzoo.inference.markov.trajectory_length import Jump, initial_length, jump_of_spread, squared_jump, update_length

WIDTHS = torch.logspace(-3, 0, 30)


def model() -> None:
    pyro.sample("z", dist.Normal(torch.zeros(30), WIDTHS).to_event(1))


@pytest.mark.parametrize(("dynamics", "jump"), [(Microcanonical(), squared_jump), (Newtonian(), jump_of_spread)])
def test_trajectories_are_short_once_scales_are_known(dynamics: Dynamics, jump: Jump) -> None:
    settings = LockstepSettings(150, 0, 0.7, jump, None, 1000, None)
    theta = torch.randn(4, 30, generator=torch.Generator().manual_seed(0)) * WIDTHS
    loop = LockstepLoop(dynamics, build_density(model), settings, theta, 0)
    leaps, first = [], window_ends(150)[1]
    for _ in range(150):
        leaps.append(-loop.num_leaps)
        loop.advance()
        leaps[-1] += loop.num_leaps
        if loop.count == first:
            assert loop.length.value == pytest.approx(dynamics.quarter_period(30))
    assert max(leaps[:first]) <= EARLY_STEPS
    # in units of the widths a quarter period is a few steps, in the units of before hundreds of them
    assert sum(leaps[100:]) / 50 < 40


@pytest.mark.parametrize(("slope", "expected"), [(2.0, 3.0), (0.0, 0.5)])
def test_lengths_are_bounded(slope: float, expected: float) -> None:
    state = initial_length(1.0)
    for _ in range(
        100
    ):  # jumps that grow like the square of the time ask for longer and longer trajectories, constant ones for none
        state = update_length(state, jumped=1.0, slope=slope, time=1.0, bounds=(0.5, 3.0))
    assert state.value == pytest.approx(expected)
