"""The loop of microcanonical Langevin dynamics: its step, and the tuning of the step size."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density
from bnnzoo.engine.packed import Packed
from bnnzoo.inference import MCLMC, fit
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical, Point, arrive, drift
from bnnzoo.inference.markov.lockstep.langevin import (
    NO_ERROR_YET,
    OUTLIER,
    Discounted,
    LangevinLoop,
    LangevinSettings,
    _updated,
    batched_langevin_step,
)
from bnnzoo.testing import linear_gaussian
from tests.helpers.samplers import log_density, log_density_gradient


def value_and_grad(theta: Tensor) -> tuple[Tensor, Tensor]:
    return log_density(theta), log_density_gradient(theta)


def start() -> Point:
    theta, noise = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value, gradient = value_and_grad(theta)
    return Point(theta, noise / noise.norm(), gradient, value, torch.zeros_like(value))


def test_a_step_without_noise_is_the_microcanonical_one() -> None:
    dynamics, scale, time = Microcanonical(), torch.ones(4, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    step, begin = batched_langevin_step(value_and_grad), start()
    end, change = step(Packed(begin), scale, time, 0 * time, torch.ones(1, 4, dtype=torch.float64))
    moved = drift(dynamics, Point(*(value[0] for value in begin)), scale, time)
    expected = arrive(dynamics, moved, *value_and_grad(moved.theta), scale, time)
    torch.testing.assert_close(end.value.theta[0], expected.theta)
    torch.testing.assert_close(end.value.momentum[0], expected.momentum)
    torch.testing.assert_close(change[0], expected.work - (expected.log_density - begin.log_density[0]))


def test_noise_turns_the_direction_before_the_step() -> None:
    scale, time = torch.ones(4, dtype=torch.float64), torch.tensor(1e-9, dtype=torch.float64)
    noise, nu = torch.tensor([[1.0, -1.0, 0.5, 2.0]], dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    end, _ = batched_langevin_step(value_and_grad)(Packed(start()), scale, time, nu, noise)
    turned = start().momentum + nu * noise
    torch.testing.assert_close(end.value.momentum, turned / turned.norm())


def test_a_wild_step_is_bounded_and_earlier_ones_are_forgotten() -> None:
    seen = Discounted(10.0, 10.0)
    assert _updated(seen, 1e9) == Discounted(0.9 * 10 + OUTLIER, 10.0)
    assert _updated(seen, 1e-9) == Discounted(1e-9, 1.0)
    assert _updated(NO_ERROR_YET, 3.0) == Discounted(3.0, 1.0)


@pytest.mark.slow
def test_the_step_size_reaches_the_wanted_energy_error() -> None:
    density = build_density(linear_gaussian().model, *linear_gaussian().data)
    settings = LangevinSettings(num_warmup=300, num_draws=100, energy_variance=1e-3)
    loop = LangevinLoop(density, settings, torch.zeros(4, 3), 0)
    while int(loop.counts.min()) < 400:
        loop.advance()
    errors = loop.stats[:, :, loop.stats_names.index("energy_error")]
    assert float(errors.mean()) == pytest.approx(1e-3, rel=0.5)


def test_a_non_finite_step_of_warm_up_is_rejected() -> None:
    density = build_density(linear_gaussian().model, *linear_gaussian().data)
    loop = LangevinLoop(density, LangevinSettings(num_warmup=10, num_draws=1, step_size=0.1), torch.zeros(2, 3), 0)
    before = loop.state.point
    broken = before._replace(gradient=torch.full_like(before.gradient, torch.nan))
    loop.state = loop.state._replace(point=broken)
    loop._learn(before)
    assert loop.state.point is before
    assert float(loop.state.step_size) == pytest.approx(0.05) and loop.tuning.error == NO_ERROR_YET


def test_steps_grow_as_chains_come_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far out the energy error of a step is a million times that at typical points; steps must not stay short for long."""
    target, errors = linear_gaussian(), []
    advance = LangevinLoop.advance

    def watched(loop: LangevinLoop) -> None:
        advance(loop)
        errors.append(loop.tuning.energy_error)

    monkeypatch.setattr(LangevinLoop, "advance", watched)
    method = MCLMC(num_chains=2, num_warmup=60, num_draws=1, init=torch.full((2, 3), 1e4))
    fit(target.model, method, *target.data, seed=6)
    assert float(np.median(errors[30:60])) > method.energy_variance / 10
