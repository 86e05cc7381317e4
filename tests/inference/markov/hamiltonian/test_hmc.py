"""Hamiltonian Monte Carlo: lengths of trajectories, and the Metropolis step at their end."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.inference import HMC, fit
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import Metric, Phase
from bnnzoo.testing import linear_gaussian

ONES, ZERO = torch.ones(2, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
METRIC = Metric(ONES, ONES)
ORIGIN = Phase(0 * ONES, 0 * ONES, 0 * ONES, ZERO)
STEP = torch.tensor(0.1, dtype=torch.float64)


def uniforms(value: float) -> torch.Tensor:
    return torch.full((2,), value, dtype=torch.float64)


@pytest.mark.parametrize(("uniform", "length"), [(1e-12, 5), (0.5, 10), (1 - 1e-12, 15)])
def test_lengths_are_within_the_jitter_of_the_mean(uniform: float, length: int) -> None:
    kernel = HMCKernel(trajectory_length=1.0, jitter=0.5, max_steps=100)
    _, trajectory = kernel.begin(*kernel.finished_trajectory(ORIGIN), METRIC, STEP, ONES, uniforms(uniform))
    assert abs(int(trajectory.control.length) - length) <= 1


def test_lengths_are_bounded() -> None:
    kernel = HMCKernel(trajectory_length=100.0, jitter=0.0, max_steps=7)
    _, trajectory = kernel.begin(*kernel.finished_trajectory(ORIGIN), METRIC, STEP, ONES, uniforms(0.5))
    assert int(trajectory.control.length) == 7


@pytest.mark.parametrize(
    ("log_density", "uniform", "accepted"), [(-0.5, 0.6, True), (-0.5, 0.61, False), (9.0, 1.0, True)]
)
def test_the_end_is_accepted_with_the_metropolis_probability(
    log_density: float, uniform: float, accepted: bool
) -> None:
    kernel = HMCKernel(trajectory_length=0.1, jitter=0.0, max_steps=10)
    end, trajectory = kernel.begin(*kernel.finished_trajectory(ORIGIN), METRIC, STEP, 0 * ONES, uniforms(0.5))
    moved = Phase(ONES, 0 * ONES, ONES, ZERO + log_density)
    end = kernel.leapfrog(end, trajectory.control, moved, METRIC, ZERO + 0.5)
    assert bool(end.stop)
    torch.testing.assert_close(end.sum_acceptance, (ZERO + log_density).exp().clamp(max=1.0))
    _, trajectory = kernel.propose(end, trajectory, METRIC, uniforms(uniform))
    assert bool(trajectory.done) and bool((trajectory.proposal.theta == 1).all()) == accepted


def test_a_divergent_trajectory_stops_and_is_rejected() -> None:
    kernel = HMCKernel(trajectory_length=1.0, jitter=0.0, max_steps=10)
    end, trajectory = kernel.begin(*kernel.finished_trajectory(ORIGIN), METRIC, STEP, 0 * ONES, uniforms(0.5))
    end = kernel.leapfrog(end, trajectory.control, Phase(ONES, ONES, ONES, ZERO - torch.inf), METRIC, ZERO + 0.5)
    assert bool(end.stop) and bool(end.diverging) and int(end.num_steps) == 1
    _, trajectory = kernel.propose(end, trajectory, METRIC, uniforms(1e-300))
    assert bool((trajectory.proposal.theta == 0).all())


def test_statistics_of_hmc() -> None:
    target = linear_gaussian()
    method = HMC(num_chains=2, num_warmup=0, num_draws=50, step_size=0.05, trajectory_length=0.4, jitter=0.25)
    stats = fit(target.model, method, *target.data).info.sample_stats
    assert bool((stats["tree_depth"] == 0).all()) and bool((stats["step_size"] == 0.05).all())
    assert int(stats["n_steps"].min()) >= 6 and int(stats["n_steps"].max()) <= 10
    assert len(stats["n_steps"].unique()) > 2


def test_huge_steps_diverge_and_leave_chains_in_place() -> None:
    def narrow() -> None:
        pyro.sample("z", dist.Normal(0.0, 1e-3).expand([2]).to_event(1))

    start = torch.full((2, 2), 1e-3)
    posterior = fit(narrow, HMC(num_chains=2, num_warmup=0, num_draws=10, step_size=1.0, init=start))
    assert bool(posterior.info.sample_stats["diverging"].all())
    assert bool((posterior.draws() == 1e-3).all())
