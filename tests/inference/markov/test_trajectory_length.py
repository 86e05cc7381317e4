"""The tuning of the trajectory length: measures of jumps, and where the length goes."""

import pytest
import torch

from bnnzoo.inference.markov.lockstep.dynamics import Point
from bnnzoo.inference.markov.trajectory_length import (
    Jump,
    initial_length,
    jump_of_spread,
    squared_jump,
    update_length,
)

SCALE = torch.tensor([1.0, 2.0, 0.5])
MEAN = torch.tensor([0.3, -0.2, 0.1])


def at(theta: torch.Tensor, velocity: torch.Tensor) -> Point:
    zero = torch.zeros(())
    return Point(theta, velocity, torch.zeros(3), zero, zero)


@pytest.mark.parametrize("jump", [squared_jump, jump_of_spread])
def test_the_slope_is_the_derivative_by_time(jump: Jump) -> None:
    begin, velocity = torch.tensor([0.5, 1.0, -0.4]), torch.tensor([0.2, -0.7, 0.6])
    acceptance = torch.tensor(0.8)

    def measured(time: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        end = at(begin + time * SCALE * velocity, velocity)
        return jump(at(begin, velocity), end, MEAN, acceptance, 1 / SCALE)

    time = torch.tensor(1.3)
    derivative = torch.func.grad(lambda t: measured(t)[0])(time)
    torch.testing.assert_close(measured(time)[1], derivative)


@pytest.mark.parametrize("jump", [squared_jump, jump_of_spread])
def test_a_divergent_trajectory_counts_as_none(jump: Jump) -> None:
    begin, end = at(torch.zeros(3), torch.ones(3)), at(torch.full((3,), torch.inf), torch.ones(3))
    jumped, slope = jump(begin, end, MEAN, torch.tensor(0.0), 1 / SCALE)
    assert float(jumped) == 0.0 and float(slope) == 0.0


def test_the_length_goes_to_the_largest_jump_per_gradient() -> None:
    """Jumps of 1 - cos(t), those of a harmonic oscillator, are largest per unit of time where t sin t = 1 - cos t."""
    state = initial_length(0.5)
    for _ in range(2000):
        time = torch.tensor(state.value)
        state = update_length(state, float(1 - time.cos()), float(time.sin()), float(time), (0.0, 100.0))
    time = torch.tensor(state.averaged().value)
    assert float(time * time.sin() / (1 - time.cos())) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("slope", "expected"), [(2.0, 3.0), (0.0, 0.5)])
def test_lengths_are_bounded(slope: float, expected: float) -> None:
    state = initial_length(1.0)
    for _ in range(
        100
    ):  # jumps that grow with the square of the time ask for ever longer trajectories, constant ones for none
        state = update_length(state, jumped=1.0, slope=slope, time=1.0, bounds=(0.5, 3.0))
    assert state.value == pytest.approx(expected)
