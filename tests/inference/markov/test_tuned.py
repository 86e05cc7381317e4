"""What warm-up tunes is what was asked for, by the statistics of the draws after it, on a Gaussian in twenty dimensions."""

import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.method import Method
from bnnzoo.core.posterior import Draws

pytestmark = pytest.mark.filterwarnings("ignore:The chains disagree", "ignore:.*effective draws")

SCALES = torch.logspace(-1, 1, 20, dtype=torch.float64)


def gaussian() -> None:
    pyro.sample("z", dist.Normal(torch.zeros(20, dtype=torch.float64), SCALES).to_event(1))


SEEDS = 4
"""The mean rate over so many fits has a standard error of 0.01: that of one differs by 0.02 from seed to seed."""


def statistic(method: Method, name: str, seed: int = 0) -> torch.Tensor:
    posterior = bz.fit(gaussian, method, seed=seed, progress=False, dtype=torch.float64)
    assert isinstance(posterior, Draws)
    return posterior.info.sample_stats[name].double()


@pytest.mark.parametrize("wanted", [2e-3])
def test_steps_of_mclmc_have_the_energy_error_that_was_asked_for(wanted: float) -> None:
    method = bz.MCLMC(num_chains=4, num_warmup=200, num_draws=100, energy_variance=wanted)
    assert float(statistic(method, "energy_error").mean()) == pytest.approx(wanted, rel=0.25)


@pytest.mark.parametrize("target", [0.7])
@pytest.mark.parametrize("kind", [bz.MAMS, bz.ChEESHMC])
def test_trajectories_in_lockstep_are_accepted_as_often_as_was_asked_for(kind: type, target: float) -> None:
    method = kind(num_chains=8, num_warmup=300, num_draws=200, target_accept=target)
    rates = torch.stack([statistic(method, "acceptance_rate", seed) for seed in range(SEEDS)])
    harmonic = 1 / (1 / rates.clamp(min=0.01)).mean(1)  # over chains, as tuned
    assert float(harmonic.mean()) == pytest.approx(target, abs=0.05)


@pytest.mark.parametrize("target", [0.7])
@pytest.mark.parametrize("kind", [bz.NUTS, bz.HMC])
def test_hamiltonian_trajectories_are_accepted_a_little_more_often_than_was_asked_for(
    kind: type, target: float
) -> None:
    method = kind(num_chains=4, num_warmup=300, num_draws=200, target_accept=target)
    rates = torch.stack([statistic(method, "acceptance_rate", seed) for seed in range(SEEDS)])
    assert float(rates.mean()) == pytest.approx(target + 0.25 * (1 - target), abs=0.05)
