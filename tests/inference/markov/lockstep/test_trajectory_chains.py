"""Trajectories in lockstep: their Metropolis step, their numbers of steps, and what the chains learn during warm-up."""

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
from bnnzoo.inference.markov.lockstep.motions import Common, Trajectories, metropolis
from bnnzoo.inference.markov.lockstep.trajectory_chains import (
    EARLY_MAX_STEPS,
    AcceptanceTarget,
    TrajectoryChains,
    raised,
)
from bnnzoo.inference.markov.trajectory_length import Jump, jump_of_spread, squared_jump

WIDTHS = torch.logspace(-3, 0, 30)


def model() -> None:
    pyro.sample("z", dist.Normal(torch.zeros(30), WIDTHS).to_event(1))


@pytest.mark.slow
@pytest.mark.parametrize(("dynamics", "jump"), [(Microcanonical(), squared_jump), (Newtonian(), jump_of_spread)])
def test_trajectories_are_short_once_scales_are_known(dynamics: Dynamics, jump: Jump) -> None:
    settings = LockstepSettings(num_warmup=150, num_draws=0)
    theta = torch.randn(4, 30, generator=torch.Generator().manual_seed(0)) * WIDTHS
    chains = TrajectoryChains(dynamics, jump, build_density(model), settings, theta, 0, engine="graph")
    leaps, first = [], window_ends(150)[1]
    for _ in range(150):
        leaps.append(-chains.num_gradients / 4)
        chains.advance()
        leaps[-1] += chains.num_gradients / 4
        if int(chains.counts.min()) == first:
            assert chains.tuning.length.value == pytest.approx(dynamics.quarter_period(30))
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
    one = torch.ones(200, dtype=torch.float64)
    common = Common(one, 0.1 * one, one, one, 1000 * one.long(), 0.3 * one)
    steps = Trajectories(Newtonian()).num_steps(torch.arange(200), common)
    assert int(steps.min()) == 1 and int(steps.max()) == 20
    assert float(steps.double().mean()) == pytest.approx(10.5, rel=0.02)
    assert int(Trajectories(Newtonian()).num_steps(torch.arange(200), common._replace(steps=one.long() * 7)).max()) == 7


def test_a_chain_that_accepts_no_step_however_short_ends_the_fit_with_a_sentence() -> None:
    settings = LockstepSettings(num_warmup=150, num_draws=0, mass_matrix="diagonal")
    density = build_density(model, dtype=torch.float32)
    chains = TrajectoryChains(
        Microcanonical(), squared_jump, density, settings, torch.zeros(4, 30, dtype=torch.float32), seed=0
    )
    said = (
        r"Chain 2 accepts no step, however short, at draw 0 of warm-up: .* in double precision .*\(now torch.float32\)"
    )
    resting = chains.fleet.resting
    stats = resting.stats.clone()
    stats[:, chains.stats_names.index("acceptance_rate")] = torch.tensor([0.9, 0.8, 0.0, 0.9]).double()
    chains.fleet.write(resting=resting._replace(stats=stats))
    with pytest.raises(FloatingPointError, match=said):
        deque(iter(partial(chains._learn, 0), "never"), 0)


@pytest.mark.parametrize(
    ("judged", "rejected", "num_chains", "expected"),
    [
        (1000, 5, 4, 0.7),
        (1000, 6, 4, 0.9),
        (999, 999, 4, 0.7),  # too few to tell
        (1279, 1279, 32, 0.7),  # of too few draws
        (1280, 7, 32, 0.9),
    ],
)
def test_the_target_rises_where_a_share_of_a_window_is_hardly_accepted(
    judged: int, rejected: int, num_chains: int, expected: float
) -> None:
    assert raised(AcceptanceTarget(0.7, judged, rejected), num_chains) == AcceptanceTarget(pytest.approx(expected))


@pytest.mark.parametrize(("before", "after"), [(0.98, 0.99), (0.99, 0.99), (0.995, 0.995)])
def test_targets_rise_to_at_most_99_hundredths(before: float, after: float) -> None:
    assert raised(AcceptanceTarget(before, 2000, 2000), 4).accept == pytest.approx(after)


@pytest.mark.parametrize(
    ("dynamics", "jump", "expected"), [(Newtonian(), jump_of_spread, 0.9), (Microcanonical(), squared_jump, 0.7)]
)
def test_the_target_rises_where_energy_errors_have_no_bound(dynamics: Dynamics, jump: Jump, expected: float) -> None:
    settings = LockstepSettings(num_warmup=150, num_draws=0)
    chains = TrajectoryChains(dynamics, jump, build_density(model), settings, torch.zeros(4, 30), seed=0)
    chains.tuning = chains.tuning._replace(target=AcceptanceTarget(0.7, 2000, 2000))
    chains._rescale(1.0, first=False)
    assert chains.tuning.target.accept == chains.tuned["target_accept"][0] == pytest.approx(expected)


def test_trajectories_with_steps_that_are_tried_do_not_count() -> None:
    settings = LockstepSettings(num_warmup=150, num_draws=0)
    chains = TrajectoryChains(Newtonian(), jump_of_spread, build_density(model), settings, torch.zeros(4, 30), seed=0)
    for _ in range(3):
        chains.advance()
    resting, rate = chains.fleet.resting, chains.stats_names.index("acceptance_rate")
    stats = resting.stats.clone()
    stats[:, rate] = torch.tensor([0.9, 0.0099, 0.0101, 0.5]).double()
    chains.fleet.write(resting=resting._replace(stats=stats))
    tuner, step = chains.tuning.tuner, torch.tensor(0.1, dtype=torch.float64).log()
    for count, factor, counted in [
        (15, 1.49, True),
        (15, 1 / 1.49, True),
        (14, 1.0, False),
        (15, 1.51, False),
        (15, 1 / 1.51, False),
    ]:
        found = tuner._replace(count=torch.tensor(float(count)), log_average=step)
        chains.tuning = chains.tuning._replace(tuner=found, target=AcceptanceTarget(0.7))
        chains.step_size = 0.1 * factor
        chains._learn(10)
        assert chains.tuning.target == AcceptanceTarget(0.7, *((4, 1) if counted else (0, 0)))


@pytest.mark.parametrize(("num_chains", "skipped", "expected"), [(4, 0, 850), (4, 500, 950), (3, 500, 850)])
def test_a_step_settles_after_dual_averaging_wherever_chains_go_on(
    num_chains: int, skipped: int, expected: int
) -> None:
    """It averages fifteen steps first; chains that skipped draws go on with the last fifty, fewer than four with 150."""
    settings = LockstepSettings(num_warmup=1000, num_draws=0, mass_matrix="auto")
    chains = TrajectoryChains(
        Microcanonical(), squared_jump, build_density(model), settings, torch.zeros(num_chains, 30), 0
    )
    chains._skipped = skipped
    assert chains._last_end == expected
