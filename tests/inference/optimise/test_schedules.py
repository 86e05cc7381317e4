"""Learning rates against their closed forms."""

import math

import pytest
import torch

from bnnzoo.core.settings import check_settings
from bnnzoo.inference.optimise.schedules import (
    Constant,
    Cosine,
    Cyclical,
    LinearWarmup,
    WarmRestarts,
    schedule_named,
)

SCHEDULES = [Constant(), Cosine(), Cosine(0.1), Cyclical(3), WarmRestarts(7, 2), LinearWarmup(0.3, Cyclical(2))]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_steps", [1, 2, 50])
def test_factors_lie_between_zero_and_one_in_double_precision(schedule, num_steps: int) -> None:
    factors = schedule.factors(num_steps)
    assert factors.shape == (num_steps,)
    assert factors.dtype == torch.float64
    assert ((factors >= 0) & (factors <= 1)).all()


def test_cosine_is_torchs() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    torchs = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=40, eta_min=0.2)
    expected = []
    for _ in range(40):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        torchs.step()
    torch.testing.assert_close(Cosine(0.2).factors(40), torch.tensor(expected, dtype=torch.float64))


def test_warm_restarts_are_torchs() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    torchs = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, T_0=5, T_mult=3, eta_min=0.1)
    expected = []
    for _ in range(70):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        torchs.step()
    found = WarmRestarts(5, growth=3, final=0.1).factors(70)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert (found[[0, 5, 20, 65]] == 1).all()


def test_cycles_are_those_of_the_paper() -> None:
    num_steps, num_cycles = 22, 4
    length = math.ceil(num_steps / num_cycles)
    expected = [0.5 * (math.cos(math.pi * ((k - 1) % length) / length) + 1) for k in range(1, num_steps + 1)]
    torch.testing.assert_close(Cyclical(num_cycles).factors(num_steps), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("then", [Constant(), Cosine(), Cyclical(2), LinearWarmup(0.5)])
def test_warm_up_rises_to_one_and_goes_on_with_another_schedule(then) -> None:
    factors = LinearWarmup(0.2, then).factors(50)
    torch.testing.assert_close(factors[:10], torch.arange(1, 11, dtype=torch.float64) / 10)
    assert torch.equal(factors[10:], then.factors(40))


def test_names_of_settings() -> None:
    assert torch.equal(schedule_named("cosine").factors(9), Cosine().factors(9))
    assert (schedule_named("constant").factors(9) == 1).all()


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        (Cosine(1.5), r"Cosine\(final=1.5\): write a number from 0 to 1"),
        (Cyclical(0), r"Cyclical\(num_cycles=0\): write 1 or more"),
        (WarmRestarts(0), r"WarmRestarts\(first_period=0\): write 1 or more"),
        (LinearWarmup(0.0), r"LinearWarmup\(fraction=0.0\): write a number between 0 and 1"),
    ],
)
def test_refusals(schedule, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_settings(schedule)
