"""What warm-up tunes is what was asked for, by the statistics of the draws after it, on a Gaussian in twenty dimensions."""

from collections.abc import Callable
from dataclasses import replace

import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.method import Method
from bnnzoo.core.posterior.posterior import Draws

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


def schools() -> None:
    """Eight schools, non-centred: a narrow place where the scale is small, in which one of 6,000 trajectories diverges."""
    effects = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=torch.float64)
    errors = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=torch.float64)
    mean, scale = pyro.sample("mean", dist.Normal(0.0, 5.0)), pyro.sample("scale", dist.HalfCauchy(5.0))
    z = pyro.sample("z", dist.Normal(torch.zeros_like(errors), 1.0).to_event(1))
    with pyro.plate("schools", 8):
        pyro.sample("y", dist.Normal(mean + scale * z, errors), obs=effects)


def fitted(model: Callable[[], None], method: Method, seed: int) -> Draws:
    posterior = bz.fit(model, method, seed=seed, progress=False, dtype=torch.float64)
    assert isinstance(posterior, Draws)
    return posterior


@pytest.mark.filterwarnings("ignore:.*trajectories diverged")
def test_warm_up_raises_the_target_where_the_posterior_has_a_narrow_place() -> None:
    runs = [fitted(schools, bz.NUTS(), seed) for seed in range(8)]
    targets = torch.stack([run.info.tuning["target_accept"] for run in runs])
    assert float((targets > 0.8).double().mean()) > 0.8 and float(targets.max()) <= 0.99
    rates, diverging = (
        torch.stack([run.info.sample_stats[name].double().mean(1) for run in runs])
        for name in ("acceptance_rate", "diverging")
    )
    assert int((diverging.mean(1) > 0).sum()) <= 2  # of eight fits; with the target as it was, in half of them
    assert float((rates - targets).mean()) == pytest.approx(0.02, abs=0.03)


@pytest.mark.parametrize("kind", [bz.NUTS, bz.HMC])
def test_warm_up_keeps_the_target_where_the_posterior_is_gaussian(kind: type) -> None:
    targets = torch.stack([fitted(gaussian, kind(), seed).info.tuning["target_accept"] for seed in range(8)])
    assert float((targets > 0.8).double().mean()) < 0.15


def test_warm_up_raises_the_target_of_chains_in_lockstep_for_all_of_them() -> None:
    runs = [fitted(schools, bz.ChEESHMC(), seed) for seed in range(4)]
    targets = torch.stack([run.info.tuning["target_accept"] for run in runs])
    assert int((targets[:, 0] > 0.7).sum()) >= 3 and bool((targets == targets[:, :1]).all())
    rejected = torch.stack([(run.info.sample_stats["acceptance_rate"] < 0.01).double().mean() for run in runs])
    assert float(rejected.mean()) < 0.006  # with the target as it was 0.01 and more


def test_warm_up_keeps_the_target_of_chains_in_lockstep_where_the_posterior_is_gaussian() -> None:
    targets = torch.stack([fitted(gaussian, bz.ChEESHMC(), seed).info.tuning["target_accept"] for seed in range(4)])
    torch.testing.assert_close(targets, torch.full_like(targets, 0.7))


@pytest.mark.parametrize("kind", [bz.NUTS, bz.ChEESHMC])
def test_chains_that_go_on_keep_their_target(kind: type) -> None:
    first = fitted(schools, kind(num_draws=50), 0)
    more = fitted(schools, kind(num_warmup=0, num_draws=50, init=first), 1)
    torch.testing.assert_close(more.info.tuning["target_accept"], first.info.tuning["target_accept"])
    older = {name: value for name, value in first.info.tuning.items() if name != "target_accept"}
    before = replace(first, info=replace(first.info, tuning=older))  # of a state that did not raise targets
    again = fitted(schools, kind(num_warmup=0, num_draws=50, init=before), 1)
    torch.testing.assert_close(again.theta, more.theta)
