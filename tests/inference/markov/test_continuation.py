"""Runs that go on from where another ended: tuned as it was, with other random numbers, and joined with it."""

from dataclasses import replace

import pytest
import torch

from bnnzoo.inference import HMC, MAMS, MCLMC, NUTS, SGHMC, fit
from bnnzoo.inference.markov.chain_settings import ChainSettings
from bnnzoo.testing import check_moments, ill_conditioned, linear_gaussian


@pytest.mark.parametrize(
    "method",
    [
        NUTS(num_chains=2, num_warmup=30, num_draws=20),
        NUTS(num_chains=2, num_warmup=30, num_draws=20, mass_matrix="low_rank"),
        pytest.param(NUTS(num_chains=2, num_warmup=30, num_draws=20, mass_matrix="dense"), marks=pytest.mark.slow),
        MAMS(num_chains=2, num_warmup=30, num_draws=20),
        pytest.param(MCLMC(num_chains=2, num_warmup=30, num_draws=20, steps_per_draw=2), marks=pytest.mark.slow),
        pytest.param(SGHMC(num_chains=2, num_warmup=5, num_draws=20, optimise_steps=20), marks=pytest.mark.slow),
    ],
)
def test_a_run_without_warm_up_goes_on_as_the_one_before_was_tuned(method: ChainSettings) -> None:
    target = linear_gaussian(num_inputs=4)
    first = fit(target.model, method, *target.data, progress=False)
    more = fit(target.model, replace(method, num_warmup=0, init=first), *target.data, progress=False)
    assert set(more.info.tuning) == set(first.info.tuning) >= {"step_size"}
    for name, value in first.info.tuning.items():
        torch.testing.assert_close(more.info.tuning[name], torch.zeros_like(value) if name == "num_warmup" else value)
    assert not torch.equal(first.theta[:, 0], more.theta[:, 0])
    both = first.followed_by(more)
    assert both.theta.shape == (2, 40, 4)
    assert both.info.num_gradients == first.info.num_gradients + more.info.num_gradients
    assert all(value.shape == (2, 40) for value in both.info.sample_stats.values())


@pytest.mark.slow
def test_going_on_is_as_good_as_a_longer_run() -> None:
    target = ill_conditioned(condition=100.0, num_data=100, num_inputs=4)
    first = fit(target.model, NUTS(num_chains=4, num_warmup=150, num_draws=50), *target.data, progress=False)
    more = fit(target.model, NUTS(num_chains=4, num_warmup=0, num_draws=500, init=first), *target.data, progress=False)
    mean, sd = target.mean["w"].double().numpy(), target.sd["w"].double().numpy()
    check_moments("w", more.theta.double().numpy(), mean, sd)
    steps = [float(run.info.sample_stats["n_steps"].double().mean()) for run in (first, more)]
    assert steps[1] == pytest.approx(steps[0], rel=0.3)  # with unit masses a trajectory would take ten times as many


@pytest.mark.slow
def test_a_second_continuation_has_other_random_numbers() -> None:
    target = linear_gaussian()
    method = HMC(num_chains=2, num_warmup=50, num_draws=30)
    runs = [fit(target.model, method, *target.data, progress=False)]
    for _ in range(2):
        again = replace(method, num_warmup=0, init=runs[-1])
        runs.append(fit(target.model, again, *target.data, progress=False))
    distance = (runs[1].theta[:, -1] - runs[2].theta[:, -1]) / target.sd["w"]
    assert float(distance.abs().max()) > 0.1


@pytest.mark.slow
def test_the_tuning_of_another_sampler_is_refused() -> None:
    target = linear_gaussian()
    first = fit(target.model, MAMS(num_chains=2, num_warmup=20, num_draws=5), *target.data, progress=False)
    said = r"run tuned step_size \[2\], trajectory_length \[2\], .* sampler has step_size \[2\], inverse_mass .* warm up: num_"
    with pytest.raises(ValueError, match=said):
        fit(target.model, NUTS(num_chains=2, num_warmup=0, init=first), *target.data, progress=False)


def test_runs_of_other_chains_are_not_joined() -> None:
    target = linear_gaussian()
    one, other = (
        fit(target.model, NUTS(num_chains=n, num_warmup=20, num_draws=5), *target.data, progress=False) for n in (1, 2)
    )
    with pytest.raises(ValueError, match="this one has 1 chains of 3 parameters, the other 2 of 3"):
        one.followed_by(other)
