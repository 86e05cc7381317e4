"""Adaptation: dual averaging, the search for a step size, windows, and moments."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from bnnzoo.inference.markov.adaptation import (
    FAR,
    HIGHEST_TARGET,
    NEAR,
    Adaptation,
    allowed_shortfall,
    growing_windows,
    initial_adaptation,
    initial_step_size,
    judged,
    no_moments,
    observe,
    pooled_variances,
    restart_step_size,
    retuned_step_size,
    search_step_size,
    settle_step_size,
    settling_from,
    settling_gain,
    update_step_size,
    window_ends,
)


def test_variances_are_pooled_within_chains_and_shrunk_as_in_stan() -> None:
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(2, 500, 3, generator=generator, dtype=torch.float64)
    theta += 100 * torch.arange(2, dtype=torch.float64)[:, None, None]  # differences between chains are left out
    moments = no_moments(theta[:, 0])
    for row in theta.unbind(1):
        moments = observe(moments, row)
    torch.testing.assert_close(moments.mean, theta.mean(1))
    torch.testing.assert_close(moments.second / 499, theta.var(1))
    number = 2 * 499 + 1
    torch.testing.assert_close(pooled_variances(moments), (number * theta.var(1).mean(0) + 5e-3) / (number + 5))


@pytest.mark.parametrize("target", [0.6, 0.8, 0.95])
def test_dual_averaging_finds_the_acceptance_rate_asked_for(target: float) -> None:
    state = initial_step_size(torch.tensor(0.1, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    for _ in range(3000):
        noise = 0.1 * torch.randn((), generator=generator, dtype=torch.float64)
        state = update_step_size(state, (-state.log_step.exp()).exp() + noise, target)
    assert float((-state.log_average.exp()).exp()) == pytest.approx(target, abs=0.02)


def test_dual_averaging_is_that_of_hoffman_and_gelman() -> None:
    """Algorithm 5 written out: gamma 0.05, t0 10, kappa 0.75, mu the log of ten times the first step."""
    rates, target = [0.3, 0.95, 0.6, 0.0, 1.0, 0.8], 0.8
    state = initial_step_size(torch.tensor(0.2, dtype=torch.float64))
    mu, error, log_average = math.log(10 * 0.2), 0.0, 0.0
    for t, rate in enumerate(rates, 1):
        state = update_step_size(state, torch.tensor(rate, dtype=torch.float64), target)
        error = (1 - 1 / (t + 10)) * error + (target - rate) / (t + 10)
        log_step = mu - math.sqrt(t) / 0.05 * error
        log_average = t**-0.75 * log_step + (1 - t**-0.75) * log_average
        assert (float(state.log_step), float(state.log_average)) == pytest.approx((log_step, log_average), rel=1e-12)


def test_dual_averaging_restarts_at_its_average() -> None:
    state = update_step_size(initial_step_size(torch.tensor(0.1)), torch.tensor(0.9), 0.8)
    for reach in (NEAR, FAR):
        again = restart_step_size(state, torch.tensor(2.0), reach)
        torch.testing.assert_close(again.log_step.exp(), 2 * state.log_average.exp())
        torch.testing.assert_close(again.anchor.exp(), 2 * reach * state.log_average.exp())
        assert float(again.count) == 0.0


@pytest.mark.parametrize("limit", [0.005, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("num_draws", [150, 300])
def test_the_step_follows_a_mass_matrix_that_changes_in_the_last_window(limit: float, num_draws: int) -> None:
    """Acceptance falls from 1 to 0 around a step of ``limit``, 1 until the last window; it is noisy, as trajectories are."""

    def rate(step: Tensor, limit: float) -> Tensor:
        return 1 / (1 + (step / limit) ** 4)

    generator = torch.Generator().manual_seed(0)
    state = initial_step_size(torch.tensor(0.1, dtype=torch.float64))
    for edge, number in ((1.0, 400), (limit, num_draws)):
        for draw in range(number):
            settling = edge is limit and draw >= number * 2 // 3
            step = (state.log_average if settling else state.log_step).exp()
            noise = 0.15 * torch.randn((), generator=generator, dtype=torch.float64)
            acceptance = (rate(step, edge) + noise).clamp(0, 1)
            state = (settle_step_size if settling else update_step_size)(state, acceptance, 0.8)
        state = retuned_step_size(state, torch.tensor(3.0), first=False) if edge is not limit else state
    assert float(rate(state.log_average.exp(), limit)) == pytest.approx(0.85, abs=0.06)


def test_only_the_first_mass_matrix_rescales_the_step() -> None:
    state = update_step_size(initial_step_size(torch.tensor(0.1)), torch.tensor(0.9), 0.8)
    for first, factor in ((True, 3.0), (False, 1.0)):
        again = retuned_step_size(state, torch.tensor(3.0), first)
        torch.testing.assert_close(again.log_step.exp(), factor * state.log_average.exp())
        assert float(again.count) == 0.0


def test_a_chain_that_stands_still_is_given_ever_shorter_steps() -> None:
    state = initial_step_size(torch.tensor(0.1, dtype=torch.float64))._replace(log_average=torch.tensor(0.0).double())
    for _ in range(50):
        state = settle_step_size(state, torch.tensor(0.0), 0.8)
    assert float(state.log_average) == pytest.approx(-50 * 0.1 * 0.85)
    assert float(settle_step_size(state, torch.tensor(0.85), 0.8).log_average) == pytest.approx(-50 * 0.1 * 0.85)


@pytest.mark.parametrize("begin", [1e-4, 0.1, 50.0])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_the_search_ends_within_a_factor_of_two(begin: float, shape: tuple[int, ...]) -> None:
    edge = torch.tensor([1.0, 0.01]) if shape else torch.tensor(1.0)
    found = search_step_size(lambda step: (step < edge).double(), torch.full(shape, begin))
    assert bool((found >= edge / 2).all()) and bool((found <= 2 * edge).all())


@pytest.mark.parametrize("num_warmup", [0, 10, 19, 20, 60, 149, 150, 500, 1000, 2000])
def test_windows_cover_warm_up_and_leave_room_at_both_ends(num_warmup: int) -> None:
    ends = window_ends(num_warmup)
    if num_warmup < 20:
        assert ends == ()
        return
    assert list(ends) == sorted(set(ends)) and ends[0] > 0 and ends[-1] < num_warmup
    assert num_warmup - ends[-1] >= 0.15 * num_warmup - 1


@pytest.mark.parametrize("num_warmup", [0, 10, 19, 20, 35, 60, 149, 150, 500, 1000, 2000])
def test_windows_that_grow_begin_at_once_and_end_where_those_of_stan_do(num_warmup: int) -> None:
    ends = growing_windows(num_warmup)
    if num_warmup < 20:
        assert ends == ()
        return
    assert ends[0] == 0 and ends[-1] == window_ends(num_warmup)[-1]
    widths = [end - begin for begin, end in pairwise(ends)]
    assert min(widths[:-1], default=10) >= 10 and widths[-1] >= 5
    for i, end in enumerate(ends[2:]):
        assert 0.5 * end <= end - ends[i] or ends[i] == 0  # the draws of two windows are half of all, or more


@pytest.mark.parametrize("num_warmup", [0, 1, 2, 10, 19, 20, 60, 149, 150, 500, 1000, 2000])
def test_the_step_size_settles_at_the_end_of_warm_up_and_after_dual_averaging(num_warmup: int) -> None:
    last = max(window_ends(num_warmup), default=0)
    assert last < settling_from(num_warmup)
    assert num_warmup < 2 or settling_from(num_warmup) < num_warmup


@pytest.mark.parametrize(("num_draws", "gain"), [(1, 0.1), (30, 0.1), (100, 0.03), (300, 0.01)])
def test_a_step_that_settles_for_long_remembers_as_many_draws(num_draws: int, gain: float) -> None:
    assert float(settling_gain(torch.tensor(float(num_draws)))) == pytest.approx(gain)


@pytest.mark.parametrize(
    ("num_warmup", "averaged", "settling"), [(1000, 50, 100), (500, 33, 42), (300, 33, 17), (100, 10, 5)]
)
def test_the_last_draws_are_shared_between_dual_averaging_and_settling(
    num_warmup: int, averaged: int, settling: int
) -> None:
    begin = settling_from(num_warmup)
    assert (begin - window_ends(num_warmup)[-1], num_warmup - begin) == (averaged, settling)


def begun(*targets: float) -> Adaptation:
    """Return what chains have learnt whose steps aim at some targets."""
    one = torch.ones(len(targets), dtype=torch.float64)
    return initial_adaptation(one, 0.0)._replace(target=torch.tensor(targets, dtype=torch.float64))


def window(*rates: float, number: int = 100, step_size: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return steps, acceptances and divergences of a chain: most trajectories are accepted, the last ones at some rates."""
    acceptance = torch.full((1, number), 0.9, dtype=torch.float64)
    acceptance[0, number - len(rates) :] = torch.tensor(rates, dtype=torch.float64)
    steps = torch.ones_like(acceptance)
    steps[0, number - len(rates) :] = step_size
    return steps, acceptance, torch.zeros_like(acceptance, dtype=torch.bool)


@pytest.mark.parametrize(
    ("rates", "target", "raised"),
    [
        ((0.0, 0.0), 0.8, 0.9),  # 2% of trajectories break off, and 1% may
        ((0.1,), 0.8, 0.8),
        ((0.4,) * 4, 0.8, 0.8),  # accepted a little less often than half the time: no sign of a narrow place
        ((0.0,), 0.9, 0.95),
        ((0.0, 0.0), 0.7, 0.7),  # a lower target has trajectories of this kind in any posterior
        ((0.0,) * 4, 0.7, 0.85),
        ((0.0, 0.0), 0.985, HIGHEST_TARGET),
        ((0.0, 0.0), 0.995, 0.995),  # what was asked for is never lowered
    ],
)
def test_the_target_is_raised_halfway_where_trajectories_break_off(
    rates: tuple[float, ...], target: float, raised: float
) -> None:
    assert float(judged(begun(target), *window(*rates)).target) == pytest.approx(raised)


def test_a_divergence_counts_for_more_than_a_rejection() -> None:
    steps, acceptance, diverging = window(0.9, number=400)
    assert float(judged(begun(0.8), steps, acceptance, diverging).target) == 0.8
    assert float(judged(begun(0.8), *window(0.0, number=400)).target) == 0.8
    diverging[0, -1] = True
    assert float(judged(begun(0.8), steps, acceptance, diverging).target) == 0.9


def test_steps_that_dual_averaging_only_tries_do_not_count() -> None:
    assert float(judged(begun(0.8), *window(0.0, 0.0, step_size=1.4)).target) == 0.8
    assert float(judged(begun(0.8), *window(0.0, 0.0, step_size=1.2)).target) == 0.9


def test_few_trajectories_are_not_judged_and_windows_add_up() -> None:
    after = judged(begun(0.8), *window(0.0, number=50))
    assert float(after.target) == 0.8 and float(after.num_judged) == 50 and float(after.shortfall) == 1.0
    after = judged(after, *window(0.0, number=50))
    assert float(after.target) == 0.9 and float(after.num_judged) == float(after.shortfall) == 0.0
    assert float(judged(begun(0.8), *window(0.0, number=39)).num_judged) == 0.0


def test_chains_are_judged_each_by_its_own_trajectories() -> None:
    both = [torch.cat(pair) for pair in zip(window(0.0, 0.0), window(), strict=True)]
    found = judged(begun(0.8, 0.8), *both)
    assert found.target.tolist() == [0.9, 0.8]
    assert found.num_judged.tolist() == [0.0, 100.0]


def test_what_is_allowed_is_what_a_gaussian_has_and_more() -> None:
    allowed = allowed_shortfall(torch.tensor([0.6, 0.7, 0.8, 0.9, 0.98], dtype=torch.float64))
    assert allowed.tolist() == pytest.approx([0.08, 0.03375, 0.01, 0.005, 0.001])
