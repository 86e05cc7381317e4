"""Stochastic MCLMC: isotropic gradient noise does no harm, preconditioning makes it so, and energy errors tune the steps."""

from typing import Any

import numpy as np
import pytest
import torch
from arviz_stats.base.array import array_stats

from bnnzoo.core.model.density import build_density
from bnnzoo.inference import SGHMC, StochasticMCLMC, fit
from bnnzoo.inference.markov.stochastic.stochastic_mclmc import MicrocanonicalLangevin, MicrocanonicalTuning
from bnnzoo.inference.markov.stochastic.stochastic_sampler import StochasticChains
from bnnzoo.inference.markov.stochastic.stochastic_settings import plan_of
from bnnzoo.testing import LinearGaussian, ill_conditioned, linear_gaussian
from bnnzoo.testing.monte_carlo import check_moments
from tests.helpers.samplers import values

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # as short runs may

BUDGET: dict[str, Any] = {
    "num_chains": 8,
    "num_warmup": 100,
    "num_draws": 200,
    "batch_size": 20,
    "steps_per_draw": 20,
    "optimise_steps": 500,
}


def standardised(target: LinearGaussian, method: Any) -> Any:
    posterior = fit(target.model, method, *target.data, dtype=torch.float64, progress=False)
    mean, sd = (each["w"].double().numpy() for each in (target.mean, target.sd))
    return (values(posterior, "w") - mean) / sd, posterior.info


def effective(draws: Any) -> float:
    return float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean").min())


@pytest.mark.slow
def test_isotropic_gradient_noise_leaves_the_posterior_invariant_at_steps_it_dominates() -> None:
    """Gradient noise has 49 times the variance of the posterior's own gradient, and turns the direction by 0.3 in each step."""
    target = linear_gaussian(num_data=1000, num_inputs=10, correlation=0.0)
    z, _ = standardised(target, StochasticMCLMC(**BUDGET | {"num_draws": 400}, step_size=0.28 * 10**0.5))
    check_moments("w", z, np.zeros(10), np.ones(10), accuracy=0.03)


@pytest.mark.slow
def test_preconditioning_lowers_the_bias_and_mixes_faster_than_sghmc_at_the_same_number_of_gradients() -> None:
    """Inputs of unequal scales: without preconditioning the noise is anisotropic, and the narrowest parameter sets the step."""
    target = ill_conditioned(condition=100.0, num_data=200, num_inputs=4)
    with_it, info = standardised(target, StochasticMCLMC(**BUDGET))
    without, same = standardised(target, StochasticMCLMC(**BUDGET, preconditioning=None))
    sghmc, other = standardised(target, SGHMC(**BUDGET))
    assert info.num_gradients == same.num_gradients == pytest.approx(other.num_gradients, rel=0.05)
    check_moments("w", with_it, np.zeros(4), np.ones(4), accuracy=0.1)
    bias, bias_without = (np.abs(np.log((z**2).mean((0, 1)))).max() for z in (with_it, without))
    assert bias < bias_without
    assert effective(with_it) > 10 * effective(without)
    assert effective(with_it) > 2 * effective(sghmc)


def test_with_all_rows_the_energy_error_is_tuned_to_its_target() -> None:
    target = linear_gaussian(num_inputs=5)
    method = StochasticMCLMC(**BUDGET | {"batch_size": 40})
    density = build_density(target.model, *target.data, dtype=torch.float64)
    dynamics = MicrocanonicalLangevin(1.0, preconditioned=True, decoherence_length=5**0.5)
    start = target.mean["w"].double().expand(8, 5)
    plan = plan_of(method, density)
    chains = StochasticChains(dynamics, plan, density, method, start, 0, tuning=MicrocanonicalTuning)
    assert isinstance(chains.tuning, MicrocanonicalTuning)
    while int(chains.fleet.resting.counters.draws[0]) < method.num_warmup:
        chains.advance()
    errors = []
    for number in range(50):
        resting = chains.fleet.resting
        until = torch.full_like(resting.schedule.until, method.num_warmup + number + 1)
        chains.fleet.write(resting=resting._replace(schedule=resting.schedule._replace(until=until)))
        while int(chains.fleet.resting.counters.draws[0]) < int(until[0]):
            chains.advance()
        errors.append(chains.tuning.energy_error(chains.fleet.moving, chains.fleet.resting.units))
    assert float(torch.stack(errors).mean()) == pytest.approx(method.energy_variance, rel=1.0)


def test_the_step_is_bounded_by_the_share_of_gradient_noise() -> None:
    target = linear_gaussian(num_data=1000, num_inputs=10)
    quick = BUDGET | {"num_warmup": 40, "num_draws": 1}
    small, large = (
        standardised(target, StochasticMCLMC(**quick, noise_ratio=ratio))[1].sample_stats["step_size"].mean()
        for ratio in (0.05, 0.1)
    )
    assert float(large / small) == pytest.approx(2, rel=0.2)
