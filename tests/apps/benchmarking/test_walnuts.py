"""WALNUTS as it is benchmarked: gradients, steps that can be taken back, and the distribution that is drawn."""

import arviz_stats
import numpy as np
import pytest

from benchmarks.walnuts import PROBLEMS, Chain, Problem, State, funnel, sampled


def state_of(problem: Problem, seed: int) -> State:
    rng = np.random.default_rng(seed)
    theta, momentum = 0.5 * rng.normal(size=(2, problem.size))
    value, gradient = problem.gradient(theta)
    return State(theta, momentum, value, gradient, -value + 0.5 * float(momentum @ momentum))


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_are_those_of_the_log_density(name: str) -> None:
    problem = PROBLEMS[name]()
    theta = state_of(problem, 1).theta
    steps = 1e-5 * np.eye(problem.size)
    expected = [(problem.gradient(theta + each)[0] - problem.gradient(theta - each)[0]) / 2e-5 for each in steps]
    np.testing.assert_allclose(problem.gradient(theta)[1], expected, rtol=1e-6, atol=1e-6)


def test_a_step_leads_back_to_where_it_came_from() -> None:
    problem, seen = funnel(), []
    for seed in range(40):
        start = state_of(problem, seed)
        chain = Chain(problem.gradient, start, np.random.default_rng(0), 0.25, np.ones(problem.size), step_size=0.9)
        there, is_single = chain.step(start, 1)
        if there is None:
            continue
        back, _ = chain.step(there, -1)
        assert back is not None
        np.testing.assert_allclose(back.theta, start.theta, atol=1e-8)
        np.testing.assert_allclose(back.momentum, start.momentum, atol=1e-8)
        seen.append(is_single)
    assert any(seen)
    assert not all(seen)


def test_a_step_that_the_way_back_would_not_take_ends_the_trajectory() -> None:
    problem = funnel()
    chain = Chain(problem.gradient, state_of(problem, 0), np.random.default_rng(0), 0.25, np.ones(10), step_size=0.9)
    ended = 0
    for seed in range(200):
        start = state_of(problem, seed)
        if chain.step(start, 1)[0] is None:
            error = [chain.moved(start, 0.9 / 2**halvings, 2**halvings) for halvings in range(9)]
            halvings = next(number for number, (_, size) in enumerate(error) if size <= 0.25)
            there = error[halvings][0]
            there = there._replace(momentum=-there.momentum)
            assert any(chain.moved(there, 0.9 / 2**less, 2**less)[1] <= 0.25 for less in range(halvings))
            ended += 1
    assert ended > 0


@pytest.mark.slow
def test_a_funnel_of_two_dimensions_has_its_mean_and_sd() -> None:
    draws = np.stack([sampled(funnel(2), 1.0, seed, 1000)[0][:, 0] for seed in range(4)])
    error = draws.std() / np.sqrt(arviz_stats.ess(draws))
    assert abs(draws.mean()) < 4 * error
    assert abs((draws**2).mean() - 9) < 4 * (draws**2).std() / np.sqrt(arviz_stats.ess(draws**2))
