"""The dynamics of samplers in lockstep: they are time-reversible, and their work accounts for the change of volume."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bnnzoo.inference.markov.lockstep.dynamics import (
    Dynamics,
    Microcanonical,
    Newtonian,
    Point,
    drift,
    second_half_kick,
)
from bnnzoo.inference.markov.lockstep.motions import Common, LangevinMotion, LockstepState
from tests.helpers.samplers import log_density, log_density_gradient

SCALE = torch.tensor([1.0, 0.4, 1.5, 0.8], dtype=torch.float64)


def start(dynamics: Dynamics) -> Point:
    generator = torch.Generator().manual_seed(0)
    theta, noise = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    return Point(
        theta,
        dynamics.refresh(noise),
        log_density_gradient(theta),
        log_density(theta),
        torch.zeros((), dtype=torch.float64),
    )


def travelled(dynamics: Dynamics, point: Point, num_steps: int, time: float) -> Point:
    step = torch.tensor(time, dtype=torch.float64)
    for _ in range(num_steps):
        moved = drift(dynamics, point, SCALE, step)
        point = second_half_kick(
            dynamics, moved, log_density(moved.theta), log_density_gradient(moved.theta), SCALE, step
        )
    return point


@pytest.mark.parametrize("dynamics", [Newtonian(), Microcanonical()])
def test_the_integrator_is_time_reversible(dynamics: Dynamics) -> None:
    begin = start(dynamics)
    end = travelled(dynamics, begin, 40, 0.3)
    back = travelled(dynamics, end._replace(momentum=-end.momentum, work=0 * end.work), 40, 0.3)
    assert float((end.theta - begin.theta).abs().max()) > 0.5
    torch.testing.assert_close(back.theta, begin.theta)
    torch.testing.assert_close(-back.momentum, begin.momentum)
    torch.testing.assert_close(back.work, -end.work)


@pytest.mark.parametrize("dynamics", [Newtonian(), Microcanonical()])
def test_energy_error_falls_with_the_square_of_the_step(dynamics: Dynamics) -> None:
    def error(num_steps: int) -> float:
        begin = start(dynamics)
        end = travelled(dynamics, begin, num_steps, 2.0 / num_steps)
        return float(end.work - (end.log_density - begin.log_density))

    assert abs(error(80)) < 0.01
    assert error(40) / error(80) == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("dynamics", [Newtonian(), Microcanonical()])
def test_a_quarter_period_leads_to_a_right_angle(dynamics: Dynamics) -> None:
    num_params, steps = 400, 60
    theta, noise = torch.randn(2, num_params, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    theta = theta / theta.norm() * num_params**0.5
    noise = noise - (noise @ theta) / num_params * theta  # along the sphere of typical points, not across it
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones(num_params, dtype=torch.float64)
    point = Point(theta, dynamics.refresh(noise), -theta, zero, zero)
    time = torch.tensor(dynamics.quarter_period(num_params) / steps, dtype=torch.float64)
    for _ in range(steps):
        moved = drift(dynamics, point, one, time)
        point = second_half_kick(dynamics, moved, zero, -moved.theta, one, time)
    assert abs(float(point.theta @ theta) / num_params) < 0.01


@pytest.mark.parametrize("time", [0.1, 1.0, 5.0])
def test_work_is_the_volume_squeezed_on_the_sphere(time: float) -> None:
    dynamics, force = Microcanonical(), torch.tensor([1.0, -2.0, 0.5, 1.5], dtype=torch.float64)
    momentum = start(dynamics).momentum

    def turned(u: Tensor) -> Tensor:
        return dynamics.kick(u / u.norm(), force, torch.tensor(time, dtype=torch.float64))[0]

    end, work = dynamics.kick(momentum, force, torch.tensor(time, dtype=torch.float64))
    jacobian: Any = torch.func.jacrev(turned)(momentum)
    before, after = tangents(momentum), tangents(end)
    torch.testing.assert_close(-torch.linalg.det(after.mT @ jacobian @ before).abs().log(), work)


def tangents(u: Tensor) -> Tensor:
    """Return an orthonormal basis ``[P, P - 1]`` of the plane that touches the sphere at ``u``."""
    basis: Tensor = torch.linalg.svd(u[None]).Vh[1:].mT
    return basis


def test_work_of_newtonian_kicks_is_the_change_of_kinetic_energy() -> None:
    dynamics, begin = Newtonian(), start(Newtonian())
    end = travelled(dynamics, begin, 5, 0.2)
    torch.testing.assert_close(end.work, dynamics.kinetic(end.momentum) - dynamics.kinetic(begin.momentum))


def test_huge_forces_do_not_overflow() -> None:
    dynamics, begin = Microcanonical(), start(Microcanonical())
    momentum, work = dynamics.kick(begin.momentum, torch.full((4,), 1e100, dtype=torch.float64), torch.tensor(1.0))
    assert bool(momentum.isfinite().all()) and bool(work.isfinite())
    torch.testing.assert_close(momentum, torch.full((4,), 0.5, dtype=torch.float64))


def test_a_draw_of_langevin_dynamics_that_failed_is_left_in_the_opposite_direction() -> None:
    begin = start(Microcanonical())
    lost = begin._replace(theta=begin.theta + 1.0, log_density=torch.tensor(torch.nan, dtype=torch.float64))
    one = torch.ones((), dtype=torch.float64)
    common = Common(SCALE, begin.work, begin.work, one, one.long(), one)
    found, _ = LangevinMotion().end(begin, LockstepState(lost, one), common, one, one)
    assert torch.equal(found.theta, begin.theta)
    assert torch.equal(found.momentum, -begin.momentum)
    kept, _ = LangevinMotion().end(begin, LockstepState(begin._replace(theta=begin.theta + 1.0), one), common, one, one)
    assert torch.equal(kept.momentum, begin.momentum)
