"""The loop over chains in lockstep: its Metropolis step, and what it learns during warm-up."""

import math
from collections import deque
from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.func import vmap

from bnnzoo.core.model.density import build_density
from bnnzoo.inference.markov.adaptation import window_ends
from bnnzoo.inference.markov.chain_settings import LockstepSettings
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics, Microcanonical, Newtonian, Point
from bnnzoo.inference.markov.lockstep.loop import EARLY_MAX_STEPS, LockstepLoop
from bnnzoo.inference.markov.lockstep.motions import metropolis
from bnnzoo.inference.markov.trajectory_length import Jump, jump_of_spread, squared_jump

WIDTHS = torch.logspace(-3, 0, 30)


def model() -> None:
    pyro.sample("z", dist.Normal(torch.zeros(30), WIDTHS).to_event(1))


@pytest.mark.slow
@pytest.mark.parametrize(("dynamics", "jump"), [(Microcanonical(), squared_jump), (Newtonian(), jump_of_spread)])
def test_trajectories_are_short_once_scales_are_known(dynamics: Dynamics, jump: Jump) -> None:
    settings = LockstepSettings(num_warmup=150, num_draws=0)
    theta = torch.randn(4, 30, generator=torch.Generator().manual_seed(0)) * WIDTHS
    loop = LockstepLoop(dynamics, jump, build_density(model), settings, theta, 0)
    leaps, first = [], window_ends(150)[1]
    for _ in range(150):
        leaps.append(-loop.num_leaps)
        loop.advance()
        leaps[-1] += loop.num_leaps
        if loop.state.iteration == first:
            assert loop.tuning.length.value == pytest.approx(dynamics.quarter_period(30))
    assert max(leaps[:first]) <= EARLY_MAX_STEPS
    # in units of the widths a quarter period is a few steps, in the units of before hundreds of them
    assert sum(leaps[100:]) / 50 < 40


def points(log_density: list[float], work: list[float]) -> Point:
    ones = torch.ones(len(work), 2)
    values = torch.tensor(log_density), torch.tensor(work)
    return Point(ones * torch.tensor(work)[:, None], ones, ones, *values)


def test_the_metropolis_step_accepts_by_the_energy_error() -> None:
    """Errors of log 2, -1, NaN and infinity; a uniform number of 0.4 accepts the first two."""
    start = points([0.0] * 4, [0.0] * 4)
    end = points([0.0, 1.0, torch.nan, -torch.inf], [math.log(2.0), 0.0, 1.0, 1.0])
    point, error, acceptance = vmap(metropolis)(start, end, torch.full((4,), 0.4))
    torch.testing.assert_close(error, torch.tensor([math.log(2.0), -1.0, torch.inf, torch.inf]))
    torch.testing.assert_close(acceptance, torch.tensor([0.5, 1.0, 0.0, 0.0]))
    assert torch.equal(point.theta[:2], end.theta[:2]) and torch.equal(point.theta[2:], start.theta[2:])
    rejected, _, _ = vmap(metropolis)(start, end, torch.full((4,), 0.6))
    assert torch.equal(rejected.theta[0], start.theta[0])


def test_numbers_of_steps_are_uniform_up_to_twice_the_mean() -> None:
    settings = LockstepSettings(num_warmup=0, num_draws=200, step_size=0.1, trajectory_length=1.0)
    loop = LockstepLoop(Newtonian(), squared_jump, build_density(model), settings, torch.zeros(2, 30), 0)
    steps = []
    for iteration in range(200):
        loop.state = loop.state._replace(iteration=iteration)
        steps.append(loop._num_steps_at(loop.state.iteration))
    assert min(steps) == 1 and max(steps) == 20
    assert sum(steps) / len(steps) == pytest.approx(10.5, rel=0.02)


def test_a_snapshot_goes_on_with_the_very_next_draw() -> None:
    settings = LockstepSettings(num_warmup=40, num_draws=10)
    theta = torch.randn(3, 30, generator=torch.Generator().manual_seed(0)) * WIDTHS
    loops = [LockstepLoop(Microcanonical(), squared_jump, build_density(model), settings, theta, 0) for _ in range(2)]
    for _ in range(17):
        loops[0].advance()
    loops[1].restore(loops[0].snapshot())
    for loop in loops:
        loop.advance()
    assert torch.equal(loops[0].state.point.theta, loops[1].state.point.theta)
    assert loops[0].num_leaps == loops[1].num_leaps and loops[0].tuning.length == loops[1].tuning.length


def test_a_chain_that_accepts_no_step_however_short_ends_the_fit_with_a_sentence() -> None:
    settings = LockstepSettings(num_warmup=150, num_draws=0)
    density = build_density(model, dtype=torch.float32)
    loop = LockstepLoop(
        Microcanonical(), squared_jump, density, settings, torch.zeros(4, 30, dtype=torch.float32), seed=0
    )
    start = loop._refreshed()
    said = (
        r"Chain 2 accepts no step, however short, at draw 0 of warm-up: .* in double precision .*\(now torch.float32\)"
    )
    learn = partial(loop._learn, start, start, torch.tensor([0.9, 0.8, 0.0, 0.9]), 1)
    with pytest.raises(FloatingPointError, match=said):
        deque(iter(learn, "never"), 0)
