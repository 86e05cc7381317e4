"""Calibration of the samplers that are exact, and its power: one that accepts wrongly is found out, in native code too."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.inference.markov.hamiltonian import hmc, nuts
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import energy
from bnnzoo.inference.markov.hamiltonian.nuts import NUTSKernel
from bnnzoo.inference.markov.lockstep import trajectory_chains
from bnnzoo.inference.markov.lockstep.motions import Trajectories
from bnnzoo.inference.markov.tempering import ladder
from bnnzoo.validation import sbc

NUM_DRAWS = 49

pytestmark = pytest.mark.filterwarnings(
    "ignore::bnnzoo.inference.FitWarning"
)  # of short fits, which ranks are to judge


def counts(y: Tensor) -> None:
    """Counts with rates of their own, whose posteriors are independent Gamma distributions."""
    with pyro.plate("rows", len(y)):
        rate = pyro.sample("theta", dist.Gamma(torch.tensor(2.0, dtype=torch.float64), 1.0))
        pyro.sample("y", dist.Poisson(rate), obs=y)


def measurements(y: Tensor) -> None:
    """Measurements of means whose posteriors are independent Gaussians of variance one."""
    zero = torch.zeros((), dtype=torch.float64)
    with pyro.plate("rows", len(y)):
        mean = pyro.sample("theta", dist.Normal(zero, 2**0.5))
        pyro.sample("y", dist.Normal(mean, 2**0.5), obs=y)


def z_scores(model: Callable[..., None], method: Any, num_rows: int, num_simulations: int) -> dict[str, float]:
    """Return how far ranks are from uniform: those of all parameters, pooled, and those of the log likelihood."""
    y = torch.zeros(num_rows, dtype=torch.float64)
    call: dict[str, Any] = {"num_draws": NUM_DRAWS, "seed": 1, "progress": False, "dtype": torch.float64}
    ranks = sbc(model, method, y, num_simulations=num_simulations, **call)["prior_sbc"]
    theta, fit = ((ranks[name].to_numpy().ravel() + 0.5) / (NUM_DRAWS + 1) for name in ("theta", "log_likelihood"))
    assert theta.size == num_rows * num_simulations
    return {
        "location": z_of(theta, 0.5, 1 / 12),
        "spread": z_of((theta - 0.5) ** 2, 1 / 12, 1 / 180),
        "log likelihood": z_of(fit, 0.5, 1 / 12),
    }


def z_of(values: Any, mean: float, variance: float) -> float:
    return float((values.mean() - mean) / np.sqrt(variance / values.size))


SHORT: dict[str, Any] = {"num_warmup": 150, "num_draws": 100}


@pytest.mark.parametrize(
    ("method", "num_rows", "num_simulations"),
    [
        (bz.NUTS(num_chains=1, num_warmup=150, num_draws=200), 20, 100),
        (bz.HMC(num_chains=1, num_warmup=150, num_draws=200), 20, 100),
        (bz.MAMS(num_chains=4, **SHORT), 1000, 4),
        (bz.ChEESHMC(num_chains=4, **SHORT), 1000, 4),
        (bz.MCLMC(num_chains=4, num_warmup=60, num_draws=100), 1000, 2),
        (bz.Tempered(bz.HMC(num_chains=1, num_warmup=60, num_draws=60), num_temperatures=3), 300, 7),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, int) else str(each),
)
def test_samplers_that_adapt_are_calibrated(method: Any, num_rows: int, num_simulations: int) -> None:
    """Ranks of thousands of parameters, pooled: draws whose variances are 14% too small have a spread with a z of 5.

    Fits of samplers in lockstep cost more, so that few of them have many parameters each.
    """
    z = z_scores(counts, method, num_rows, num_simulations)
    assert num_rows * num_simulations >= 2000
    assert max(map(abs, z.values())) < 4, z


class WeightBefore(NUTSKernel):
    """A leaf is accepted by the weight of the subtree before it, which makes draws too narrow."""

    def leapfrog(self, subtree: Any, control: Any, phase: Any, metric: Any, uniform: Tensor) -> Any:
        error = energy(metric, phase) - control.energy
        odds = torch.exp(subtree.log_weight - torch.logaddexp(subtree.log_weight, -error))
        return super().leapfrog(subtree, control, phase, metric, uniform * odds)


class EveryLeaf(NUTSKernel):
    """Every leaf is accepted, whatever its energy."""

    def leapfrog(self, subtree: Any, control: Any, phase: Any, metric: Any, uniform: Tensor) -> Any:
        return super().leapfrog(subtree, control, phase, metric, 0 * uniform)


class EveryEnd(HMCKernel):
    """The end of every trajectory is accepted."""

    def propose(self, end: Any, trajectory: Any, metric: Any, uniforms: Tensor) -> Any:
        return super().propose(end, trajectory, metric, 0 * uniforms)


class HalfTheEnergy(HMCKernel):
    """The end of a trajectory is accepted by half of its energy error: u^2 < exp(-error)."""

    def propose(self, end: Any, trajectory: Any, metric: Any, uniforms: Tensor) -> Any:
        return super().propose(end, trajectory, metric, uniforms.square())


class EveryTrajectory(Trajectories):
    """The end of every trajectory in lockstep is accepted."""

    def end(self, start: Any, moving: Any, common: Any, num_steps: Tensor, uniform: Tensor) -> Any:
        return super().end(start, moving, common, num_steps, 0 * uniform)


def every_exchange(*args: Any) -> Tensor:
    """Numbers by which temperatures always exchange their states."""
    return 0 * uniforms_of_exchanges(*args)


uniforms_of_exchanges = ladder.uniforms


class Coarse(NamedTuple):
    """A sampler whose steps are coarse, so that its acceptance matters, and the size of its calibration."""

    method: Any
    num_rows: int
    num_simulations: int


LONG: dict[str, Any] = {"num_chains": 1, "num_warmup": 0, "num_draws": 200}
COARSE = {
    "NUTS": Coarse(bz.NUTS(step_size=1.4, **LONG), 10, 100),
    "NUTS of one parameter": Coarse(bz.NUTS(step_size=0.7, **LONG), 1, 800),
    "HMC": Coarse(bz.HMC(step_size=1.4, trajectory_length=3.0, **LONG), 10, 200),
    "ChEES-HMC": Coarse(bz.ChEESHMC(step_size=1.4, trajectory_length=3.0, **LONG), 10, 100),
    "MAMS": Coarse(bz.MAMS(step_size=6.0, trajectory_length=10.0, **LONG), 10, 200),
    "Tempered": Coarse(
        bz.Tempered(bz.HMC(step_size=0.3, trajectory_length=0.6, **(LONG | {"num_draws": 120})), num_temperatures=2),
        20,
        15,
    ),
}


@cache
def as_they_are(name: str) -> dict[str, float]:
    return z_scores(measurements, *COARSE[name])


@pytest.mark.parametrize(
    ("name", "room", "part", "plant"),
    [
        ("NUTS", nuts, "NUTSKernel", EveryLeaf),
        ("NUTS of one parameter", nuts, "NUTSKernel", WeightBefore),
        ("HMC", hmc, "HMCKernel", EveryEnd),
        ("HMC", hmc, "HMCKernel", HalfTheEnergy),
        ("ChEES-HMC", trajectory_chains, "Trajectories", EveryTrajectory),
        ("MAMS", trajectory_chains, "Trajectories", EveryTrajectory),
        ("Tempered", ladder, "uniforms", every_exchange),
    ],
    ids=lambda each: each if isinstance(each, str) else getattr(each, "__name__", "").rpartition(".")[2],
)
def test_a_wrong_acceptance_is_found_out(
    name: str, room: Any, part: str, plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calibration that the sampler passes fails as soon as it accepts wrongly, by a step that is coarse for it.

    Leapfrog steps of length h that are all accepted inflate a variance of one to 1 / (1 - h^2 / 4), here to 2. A planted class
    has a native program of its own, as programs are known by the class and settings of their kernel; code that could not be
    compiled would warn.
    """
    monkeypatch.setenv("BNNZOO_ENGINE", "native")
    right = as_they_are(name)
    assert max(map(abs, right.values())) < 4, right
    monkeypatch.setattr(room, part, plant)
    wrong = z_scores(measurements, *COARSE[name])
    assert max(map(abs, wrong.values())) > 5, wrong


def test_steps_of_an_unadjusted_sampler_that_are_too_long_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is accepted or rejected by MCLMC: what bounds its bias is its step."""
    monkeypatch.setenv("BNNZOO_ENGINE", "native")
    right, wrong = (
        z_scores(measurements, bz.MCLMC(step_size=step, decoherence_length=3.0, steps_per_draw=10, **LONG), 10, 200)
        for step in (2.0, 6.0)
    )
    assert max(map(abs, right.values())) < 4 and wrong["spread"] < -5, (right, wrong)
