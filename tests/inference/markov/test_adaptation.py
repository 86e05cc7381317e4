"""Adaptation: dual averaging, the search for a step size, and mass matrices from moments."""

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.inference.markov.adaptation import (
    MassMatrix,
    Moments,
    growth_of_narrowest,
    identity_metric,
    initial_step_size,
    metric_from,
    no_moments,
    observe,
    pooled_moments,
    restart_step_size,
    search_step_size,
    update_step_size,
    window_ends,
)

SD = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64)


def draws(num_chains: int = 2, num_draws: int = 500) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return SD * torch.randn(num_chains, num_draws, 3, generator=generator, dtype=torch.float64)


def moments_of(theta: Tensor, mass_matrix: MassMatrix) -> Moments:
    """Return the moments of Gaussian draws ``[C, S, P]``, whose gradient is ``-theta / SD**2``."""
    moments = no_moments(theta[:, 0], mass_matrix)
    for row in theta.unbind(1):
        moments = vmap(observe)(moments, row, -row / SD**2)
    return moments


def test_moments_are_those_of_the_draws() -> None:
    theta = draws()
    moments = moments_of(theta, "dense")
    torch.testing.assert_close(moments.mean, theta.mean(1))
    torch.testing.assert_close(moments.second[0] / 499, torch.cov(theta[0].T))


def test_variances_are_shrunk_as_in_stan() -> None:
    theta = draws()
    metric = vmap(metric_from)(moments_of(theta, "diagonal"))
    torch.testing.assert_close(metric.inverse_mass, (500 * theta.var(1) + 5e-3) / 505)
    torch.testing.assert_close(metric.mass_sqrt, metric.inverse_mass.rsqrt())


def test_a_dense_mass_matrix_is_factorised() -> None:
    metric = vmap(metric_from)(moments_of(draws(), "dense"))
    eye = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    torch.testing.assert_close(metric.mass_sqrt @ metric.mass_sqrt.mT @ metric.inverse_mass, eye)


def test_gradients_give_variances_of_a_gaussian_from_few_draws() -> None:
    metric = vmap(metric_from)(moments_of(draws(num_draws=5), "fisher"))
    torch.testing.assert_close(metric.inverse_mass, (SD**2).expand(2, 3), rtol=1e-6, atol=0.0)


def test_pooled_moments_leave_out_differences_between_chains() -> None:
    theta = draws()
    apart = theta + 100 * torch.arange(2, dtype=torch.float64)[:, None, None]
    pooled = pooled_moments(moments_of(apart, "diagonal"))
    assert float(pooled.count) == 2 * 499 + 1
    torch.testing.assert_close(pooled.second / (pooled.count - 1), theta.var(1).mean(0))


def test_the_narrowest_direction_limits_the_step() -> None:
    old = identity_metric(torch.zeros(1, 3, dtype=torch.float64), "diagonal")
    new = vmap(metric_from)(moments_of(draws(1), "diagonal"))
    torch.testing.assert_close(growth_of_narrowest(old, new), new.inverse_mass.min().rsqrt())


@pytest.mark.parametrize("target", [0.6, 0.8, 0.95])
def test_dual_averaging_finds_the_acceptance_rate_asked_for(target: float) -> None:
    state = initial_step_size(torch.tensor(0.1, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    for _ in range(3000):
        noise = 0.1 * torch.randn((), generator=generator, dtype=torch.float64)
        state = update_step_size(state, (-state.log_step.exp()).exp() + noise, target)
    assert float((-state.log_average.exp()).exp()) == pytest.approx(target, abs=0.02)


def test_dual_averaging_restarts_at_its_average() -> None:
    state = update_step_size(initial_step_size(torch.tensor(0.1)), torch.tensor(0.9), 0.8)
    again = restart_step_size(state, torch.tensor(2.0))
    torch.testing.assert_close(again.log_step.exp(), 2 * state.log_average.exp())
    torch.testing.assert_close(again.anchor.exp(), 20 * state.log_average.exp())
    assert float(again.count) == 0.0


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
