"""Stochastic-gradient chains on a linear-Gaussian model: exact moments as steps shrink, and the order of the bias."""

from typing import Any

import numpy as np
import pytest
import torch

from bnnzoo.inference import PSGLD, SGHMC, SGLD, CyclicalSGMCMC, StochasticMCLMC, fit
from bnnzoo.inference.markov.stochastic.sghmc import UnderdampedLangevin
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Step
from bnnzoo.testing import linear_gaussian
from bnnzoo.testing.monte_carlo import check_moments, mean_z_score, variance_z_score
from tests.helpers.samplers import values

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # as short runs may

TARGET = linear_gaussian(correlation=0.0)
MEAN, SD = (each["w"].double().numpy() for each in (TARGET.mean, TARGET.sd))
ALL_ROWS = len(TARGET.data[1])


def budgets(quick: tuple[float, int], *long: tuple[float, int]) -> Any:
    """Return step sizes and steps per draw, of which only the first run by default."""
    rest = [pytest.param(*each, marks=pytest.mark.slow) for each in long]
    return pytest.mark.parametrize(("size", "steps"), [quick, *rest])


PLAIN: dict[str, Any] = {
    "num_chains": 16,
    "num_warmup": 20,
    "num_draws": 500,
    "batch_size": ALL_ROWS,
    "preconditioning": None,
    "optimise_steps": 200,
}


def variance_of(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances of w, relative to the exact ones, and their Monte Carlo standard errors."""
    draws = values(posterior, "w")
    squares = ((draws - MEAN) / SD) ** 2
    ratio = squares.mean((0, 1))
    return ratio, np.abs((ratio - 1) / variance_z_score(draws, MEAN, SD))


def fitted(method: Any) -> Any:
    return fit(TARGET.model, method, *TARGET.data, seed=1, dtype=torch.float64, progress=False)


@budgets((1.2, 5), (0.6, 10), (0.3, 20))
def test_sgld_tends_to_the_posterior_with_a_bias_of_first_order(size: float, steps: int) -> None:
    """With all rows the variance is too large by the factor 1 / (1 - e / 4), e the step size over the posterior variance."""
    variance = float(SD.max() ** 2)
    posterior = fitted(SGLD(**PLAIN, step_size=size * variance, steps_per_draw=steps))
    ratio, error = variance_of(posterior)
    expected = 1 / (1 - size * (variance / SD**2) / 4)
    assert np.all(np.abs(ratio - expected) < 5 * error)
    assert np.all(np.abs(mean_z_score(values(posterior, "w"), MEAN, SD * expected**0.5)) < 5)


@pytest.mark.slow
@budgets((0.4, 10), (0.2, 20), (0.1, 40))
def test_sgld_on_independent_rows_is_heated_by_its_gradient_noise_to_first_order(size: float, steps: int) -> None:
    """The excess of the variance halves with the step size: e / 4 of discretisation and e V / (4 H) of gradient noise."""
    variance = float(SD.max() ** 2)
    posterior = fitted(SGLD(**PLAIN | {"batch_size": 20}, step_size=size * variance, steps_per_draw=steps))
    ratio, error = variance_of(posterior)
    most = size * ALL_ROWS / 20 / 4  # V / H is at most about N / B - 1, less where batches are passes over the data
    assert np.all(ratio < 1 + 1.5 * most + 5 * error) and np.all(ratio > 1 - 5 * error)


@budgets((1.0, 10), (0.5, 10), (0.25, 20))
def test_sghmc_with_exact_gradients_has_the_exact_variance_at_every_step_size(size: float, steps: int) -> None:
    posterior = fitted(SGHMC(**PLAIN, step_size=size * float(SD.min()), steps_per_draw=steps, momentum_decay=0.3))
    check_moments("w", values(posterior, "w"), MEAN, SD)


@budgets((0.4, 10), (0.2, 30), (0.1, 100))
def test_sghmc_on_mini_batches_has_a_bias_of_second_order(size: float, steps: int) -> None:
    """Gradient noise heats by h^2 V / (1 - c^2): a quarter as much at half the step."""
    posterior = fitted(SGHMC(**PLAIN | {"batch_size": 20}, step_size=size * float(SD.min()), steps_per_draw=steps))
    ratio, error = variance_of(posterior)
    most = size**2 / (1 - 0.9**2)  # V / H is about N / B - 1 = 1
    assert np.all(ratio < 1 + 2 * most + 5 * error) and np.all(ratio > 1 - 5 * error)


@pytest.mark.slow
def test_sghmc_corrected_for_its_gradient_noise_keeps_the_variance_at_steps_that_heat_it_otherwise() -> None:
    budget: dict[str, Any] = {"num_chains": 16, "num_draws": 500, "batch_size": 10, "steps_per_draw": 10}
    ratio, error = variance_of(fitted(SGHMC(**budget, noise_correction=True, optimise_steps=200)))
    assert np.all(np.abs(ratio - 1) < 0.1 + 5 * error)


def test_psgld_has_the_variance_of_its_own_preconditioner() -> None:
    """V tends to the mean squared gradient ``H r / N^2``, r the factor of the variance, so that ``r = 1 + c sqrt(r)``.

    G is ``N / sqrt(H r)`` then, and ``c = e N sqrt(H) / 4`` the first-order bias at its own step size ``e G``.
    """
    size = 1.2 * float(SD.max()) / ALL_ROWS
    budget: dict[str, Any] = {name: value for name, value in PLAIN.items() if name != "preconditioning"}
    method = PSGLD(**budget | {"num_warmup": 200}, step_size=size, steps_per_draw=5, decay=0.997, damping=1e-12)
    ratio, error = variance_of(fitted(method))
    c = size * ALL_ROWS / SD / 4
    expected = ((c + np.sqrt(c**2 + 4)) / 2) ** 2
    assert np.all(expected > 1.2)
    assert np.all(np.abs(ratio - expected) < 5 * error + 0.01 * expected)  # G varies a little with the gradient


def test_stochastic_mclmc_with_exact_gradients_and_short_steps_has_the_exact_moments() -> None:
    length = float(SD.mean() * len(SD) ** 0.5)
    method = StochasticMCLMC(
        **PLAIN, step_size=0.3 * float(SD.min()), steps_per_draw=8, decoherence_length=length, temperature=1.5
    )
    check_moments("w", values(fitted(method), "w"), MEAN, SD * 1.5**0.5, accuracy=0.01)


def test_cyclical_draws_have_the_variance_of_their_place_in_the_cycle() -> None:
    """``v <- (1 - e H / 2)^2 v + e`` with noise, and without it where the cycle explores; draws precede their last step."""
    size, cycles, per_cycle, steps = 0.8 * float(SD.min() ** 2), 40, 6, 5
    budget = PLAIN | {"num_draws": cycles * per_cycle, "steps_per_draw": steps}
    method = CyclicalSGMCMC(**budget, num_cycles=cycles, step_size=size, exploration=0.75)
    draws = (values(fitted(method), "w") - MEAN).reshape(16 * cycles, per_cycle, -1)
    length, variance, expected = 4 * per_cycle * steps, SD**2, []
    exploring = length - per_cycle * steps
    for k in np.arange(2 * length):  # the second cycle begins where the first one ends
        place = k % length
        if place >= exploring and (place - exploring) % steps == steps - 1:
            expected.append(variance)
        epsilon = size * 0.5 * (1 + np.cos(np.pi * place / length))
        variance = (1 - epsilon / SD**2 / 2) ** 2 * variance + epsilon * (place >= exploring)
    wanted = np.array(expected[per_cycle:])
    assert wanted.min() < 0.8 * float(SD.min() ** 2)
    assert np.all(np.abs((draws**2).mean(0) / wanted - 1) < 5 * (2 / len(draws)) ** 0.5)
    assert np.all(np.abs(draws.mean(0)) < 5 * np.sqrt(wanted / len(draws)))


@pytest.mark.parametrize(("counts_noise", "temperature"), [(True, 1.0), (True, 2.0), (False, 1.0)])
def test_the_momentum_of_sghmc_keeps_its_variance(counts_noise: bool, temperature: float) -> None:
    """A step adds the gradient's noise, loses a part, and adds as much thermal noise as is missing, the gradient's deducted."""
    generator, num = torch.Generator().manual_seed(0), 200_000
    momentum, gradient, noise = torch.randn(3, 1, num, generator=generator, dtype=torch.float64)
    known = 4.0 if counts_noise else 0.0
    dynamics = UnderdampedLangevin(temperature, 0.025, True, 0.3, counts_noise)
    size, scale = torch.tensor([[0.1]]).double(), torch.tensor([[2.0]]).double()
    step = Step(size, scale, torch.full((1, num), 4.0).double(), torch.tensor(1.0).double())
    _, (after,) = dynamics.move(known**0.5 * gradient, (temperature**0.5 * momentum,), step, noise)
    assert float(after.var()) == pytest.approx(temperature, rel=5 * (2 / num) ** 0.5)
    assert float(after.mean()) == pytest.approx(0.0, abs=5 * (temperature / num) ** 0.5)


@pytest.mark.parametrize(
    ("kind", "temperature"),
    [
        (SGLD, 0.5),
        (SGHMC, 2.0),
        pytest.param(SGLD, 2.0, marks=pytest.mark.slow),
        pytest.param(SGHMC, 0.5, marks=pytest.mark.slow),
    ],
)
def test_temperature_scales_the_variance_and_nothing_else(kind: Any, temperature: float) -> None:
    posterior = fitted(kind(num_chains=16, num_draws=300, temperature=temperature, optimise_steps=200))
    check_moments("w", values(posterior, "w"), MEAN, SD * temperature**0.5, accuracy=0.05)


DEFAULTS: dict[str, tuple[Any, float]] = {
    "SGLD": (SGLD(num_chains=16, num_draws=300, batch_size=10, steps_per_draw=20), 0.05),
    "SGLD, map": (SGLD(num_chains=16, num_draws=300, batch_size=10, steps_per_draw=20, control_variates="map"), 0.05),
    "SGLD, svrg": (SGLD(num_chains=16, num_draws=300, batch_size=10, steps_per_draw=20, control_variates="svrg"), 0.05),
    "PSGLD": (PSGLD(num_chains=16, num_draws=300, batch_size=10, steps_per_draw=20), 0.1),
    "SGHMC": (SGHMC(num_chains=16, num_draws=300, batch_size=10, steps_per_draw=20), 0.05),
    "StochasticMCLMC": (StochasticMCLMC(num_chains=16, num_draws=300, batch_size=10), 0.05),
    "CyclicalSGMCMC": (CyclicalSGMCMC(num_chains=16, num_cycles=30, num_draws=300, batch_size=10), 0.15),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULTS)
def test_default_settings_recover_the_posterior_within_the_stated_bias(name: str) -> None:
    method, accuracy = DEFAULTS[name]
    check_moments("w", values(fitted(method), "w"), MEAN, SD, accuracy=accuracy)
