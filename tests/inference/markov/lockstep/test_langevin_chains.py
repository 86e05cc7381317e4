"""Chains of microcanonical Langevin dynamics: their step, and the tuning of the step size."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density
from bnnzoo.inference import MCLMC, fit
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical, Point, drift, second_half_kick
from bnnzoo.inference.markov.lockstep.langevin_chains import (
    NO_ERROR_YET,
    OUTLIER,
    Discounted,
    LangevinChains,
    LangevinSettings,
    _updated,
)
from bnnzoo.inference.markov.lockstep.lockstep_program import LockstepHeld, LockstepMoving, LockstepProgram
from bnnzoo.inference.markov.lockstep.motions import Common, LangevinMotion, LockstepState
from bnnzoo.inference.markov.noise import normals
from bnnzoo.testing import linear_gaussian
from tests.helpers.samplers import log_density, log_density_gradient

ONE = torch.ones((), dtype=torch.float64)
KEY = torch.tensor(5)


def value_and_grad(theta: Tensor) -> tuple[Tensor, Tensor]:
    found: Any = log_density(theta[None])[0], log_density_gradient(theta[None])[0]
    return found


def start() -> Point:
    theta, noise = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value, gradient = value_and_grad(theta)
    return Point(theta, noise / noise.norm(), gradient, value, torch.zeros_like(value))


def stepped(step_size: float, nu: float) -> LockstepState:
    """Return where the step number 3 of the program leads from the start."""
    program, common = (
        LockstepProgram(LangevinMotion()),
        Common(torch.ones(4).double(), step_size * ONE, nu * ONE, ONE, ONE, ONE),
    )
    held, number = LockstepHeld(common, KEY), torch.tensor(3)
    moving = LockstepMoving(LockstepState(start(), 0 * ONE), number, number + 5)
    theta, _, ahead = program.point(moving, held)
    found = program.step(moving, held, ahead, *value_and_grad(theta))
    assert int(program.steps_left(found)) == 4
    return found.state


def test_a_step_without_noise_is_the_microcanonical_one() -> None:
    begin, scale, time = start(), torch.ones(4, dtype=torch.float64), 0.1 * ONE
    moved = drift(Microcanonical(), begin, scale, time)
    expected = second_half_kick(Microcanonical(), moved, *value_and_grad(moved.theta), scale, time)
    found = stepped(0.1, 0.0)
    torch.testing.assert_close(found.point, expected)
    torch.testing.assert_close(found.squares, (expected.work - (expected.log_density - begin.log_density)).square())


def test_noise_turns_the_direction_before_the_step() -> None:
    turned = start().momentum + 0.7 * normals(KEY, 3 * 4 + torch.arange(4), torch.float64)
    torch.testing.assert_close(stepped(1e-9, 0.7).point.momentum, turned / turned.norm())


def test_a_wild_step_is_bounded_and_earlier_ones_are_forgotten() -> None:
    seen = Discounted(10.0, 10.0)
    assert _updated(seen, 1e9) == Discounted(0.9 * 10 + OUTLIER, 10.0)
    assert _updated(seen, 1e-9) == Discounted(1e-9, 1.0)
    assert _updated(NO_ERROR_YET, 3.0) == Discounted(3.0, 1.0)


@pytest.mark.slow
def test_the_step_size_reaches_the_wanted_energy_error() -> None:
    density = build_density(linear_gaussian().model, *linear_gaussian().data)
    settings = LangevinSettings(num_warmup=300, num_draws=100, energy_variance=1e-3)
    loop = LangevinChains(density, settings, torch.zeros(4, 3), 0)
    while int(loop.counts.min()) < 400:
        loop.advance()
    errors = loop.stats[:, :, loop.stats_names.index("energy_error")]
    assert float(errors.mean()) == pytest.approx(1e-3, rel=0.5)


def test_a_non_finite_step_of_warm_up_is_rejected() -> None:
    density = build_density(linear_gaussian().model, *linear_gaussian().data)
    chains = LangevinChains(density, LangevinSettings(num_warmup=10, num_draws=1, step_size=0.1), torch.zeros(2, 3), 0)
    chains.advance()
    resting = chains.fleet.resting
    before = resting.start.theta.clone()
    broken = resting.drawn._replace(gradient=torch.full_like(before, torch.nan))
    chains.fleet.write(resting=resting._replace(drawn=broken))
    chains._learn(1)
    assert torch.equal(chains.fleet.resting.drawn.theta, before)
    assert chains.step_size == pytest.approx(0.05) and chains.tuning.error == NO_ERROR_YET


def test_steps_grow_as_chains_come_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far out the energy error of a step is a million times that at typical points; steps must not stay short for long."""
    target, errors = linear_gaussian(), []
    advance = LangevinChains.advance

    def watched(loop: LangevinChains) -> None:
        advance(loop)
        errors.append(loop.energy_error)

    monkeypatch.setattr(LangevinChains, "advance", watched)
    method = MCLMC(num_chains=2, num_warmup=60, num_draws=1, init=torch.full((2, 3), 1e4))
    fit(target.model, method, *target.data, seed=6)
    assert float(np.median(errors[30:60])) > method.energy_variance / 10


@pytest.mark.parametrize(
    ("mass_matrix", "first", "expected"), [("auto", False, 3.0), ("diagonal", True, 3.0), ("diagonal", False, 1.0)]
)
def test_steps_grow_with_the_mass_matrix(mass_matrix: Any, first: bool, expected: float) -> None:
    """Gradients tell by how much in every window; variances of early draws, which see a part of the posterior, do not."""
    density = build_density(linear_gaussian().model, *linear_gaussian().data)
    settings = LangevinSettings(num_warmup=10, num_draws=1, mass_matrix=mass_matrix)
    chains = LangevinChains(density, settings, torch.zeros(2, 3), 0)
    before = chains.step_size
    chains._rescale(3.0, first)
    assert chains.step_size == pytest.approx(expected * before) and chains.tuning.error == NO_ERROR_YET


def test_chains_that_converged_early_have_the_autocorrelation_of_their_last_draws() -> None:
    """The rows between are those of draws that were skipped."""
    density, lengths = build_density(linear_gaussian().model, *linear_gaussian().data), []
    for junk in (0.0, 1e6):
        chains = LangevinChains(density, LangevinSettings(num_warmup=1000, num_draws=1), torch.zeros(4, 3), 0)
        noise = torch.randn(chains.tuning.history.shape, generator=torch.Generator().manual_seed(0))
        chains.tuning.history.copy_(noise.cumsum(1))
        chains.tuning.history[:, :-100] = junk * torch.arange(150.0)[:, None]
        chains._skipped = 1
        chains._stop_learning()
        lengths.append(chains.tuning.length)
    assert lengths[0] == lengths[1]
