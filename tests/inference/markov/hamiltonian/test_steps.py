"""The steps of Hamiltonian kernels over chains: each chain is moved where its own trajectory stands."""

from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.engine.packed import Packed
from bnnzoo.inference.markov.adaptation import identity_metric, initial_adaptation
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import Phase, energy
from bnnzoo.inference.markov.hamiltonian.steps import (
    STATS,
    batched_begin,
    batched_leap,
    batched_learn,
    batched_propose,
)
from tests.helpers.samplers import log_density, log_density_gradient

KERNEL = HMCKernel(trajectory_length=1.0, jitter=0.5, max_steps=100)
STEP_SIZE = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
GENERATOR = torch.Generator().manual_seed(0)
THETA, NOISE = torch.randn(2, 3, 4, generator=GENERATOR, dtype=torch.float64)
YES, NO = torch.tensor([True] * 3), torch.tensor([False] * 3)


def value_and_grad(theta: Tensor) -> tuple[Tensor, Tensor]:
    return log_density(theta), log_density_gradient(theta)


def begun(done: Tensor = YES) -> tuple[Packed, Packed, Packed, Packed]:
    """Return end, trajectory, metric and adaptation of three chains, of which those that are done have begun anew."""
    value, gradient = value_and_grad(THETA)
    phase = Phase(THETA, torch.zeros_like(THETA), gradient, value)
    metric, adaptation = identity_metric(THETA, "diagonal"), initial_adaptation(THETA, STEP_SIZE, "diagonal")
    finished, trajectory = vmap(KERNEL.finished_trajectory)(phase)
    uniforms = torch.full((2, 3), 0.5, dtype=torch.float64)
    args = finished, trajectory, metric, STEP_SIZE, torch.zeros_like(NOISE), uniforms
    end, _ = vmap(KERNEL.begin, in_dims=(0, 0, 0, 0, 0, 1))(*args)
    states = Packed(end), Packed(trajectory._replace(done=done)), Packed(metric), Packed(adaptation)
    new = batched_begin(KERNEL)(*states, NOISE, uniforms)
    return *new, *states[2:]


def leapt(states: tuple[Packed, ...], num_steps: int) -> Packed:
    end, trajectory, metric, _ = states
    leap = batched_leap(KERNEL, value_and_grad)
    for _ in range(num_steps):
        end, any_stop = leap(end, trajectory, metric, STEP_SIZE, torch.rand(3, dtype=torch.float64))
        assert bool(any_stop) == bool(end.value.stop.any())
    return end


def test_only_chains_that_are_done_begin_a_trajectory() -> None:
    end, trajectory, *_ = begun(torch.tensor([True, False, True]))
    torch.testing.assert_close(end.value.phase.momentum[[0, 2]], NOISE[[0, 2]])
    assert bool((end.value.phase.momentum[1] == 0).all())
    assert trajectory.value.done.tolist() == [False, False, False]


def test_a_leap_is_a_leapfrog_step_of_each_chain() -> None:
    states = begun()
    phase = leapt(states, 1).value.phase
    halfway = NOISE + 0.5 * STEP_SIZE[:, None] * log_density_gradient(THETA)
    theta = THETA + STEP_SIZE[:, None] * halfway
    torch.testing.assert_close(phase.theta, theta)
    torch.testing.assert_close(phase.momentum, halfway + 0.5 * STEP_SIZE[:, None] * log_density_gradient(theta))
    torch.testing.assert_close(phase.log_density, log_density(theta))


def test_only_chains_whose_end_has_stopped_get_a_proposal() -> None:
    states = begun()
    end = leapt(states, 2)
    assert end.value.stop.tolist() == [False, False, True]  # one unit of time is two steps of a half
    uniforms = torch.full((2, 3), 1e-9, dtype=torch.float64)
    _, trajectory, num_rejected, any_done = batched_propose(KERNEL)(end, states[1], states[2], uniforms)
    assert int(num_rejected) == 0 and bool(any_done) and trajectory.value.done.tolist() == [False, False, True]
    torch.testing.assert_close(trajectory.value.proposal.theta[2], end.value.phase.theta[2])
    torch.testing.assert_close(trajectory.value.proposal.theta[:2], THETA[:2])


def learnt(stages: tuple[Tensor, Tensor, Tensor]) -> tuple[Any, Tensor, tuple[Packed, ...]]:
    states = begun()
    end = leapt(states, 2)
    trajectory = Packed(states[1].value._replace(done=torch.tensor([True, False, True])))
    states = end, trajectory, *states[2:]
    adaptation, stats = batched_learn(0.8)(*states, *stages)
    return adaptation.value, stats, states


def test_only_chains_that_are_done_learn_and_only_in_warm_up() -> None:
    adaptation, stats, (end, trajectory, metric, _) = learnt((torch.tensor([True, True, False]), NO, YES))
    assert adaptation.step.count.tolist() == [1.0, 0.0, 0.0]
    assert adaptation.moments.count.tolist() == [1.0, 0.0, 1.0]
    assert float(adaptation.step_size[2]) == 0.5 and float(adaptation.step_size[0]) != 0.2
    columns = dict(zip(STATS, stats.unbind(1), strict=True))
    proposal = trajectory.value.proposal
    torch.testing.assert_close(columns["lp"], log_density(THETA))
    torch.testing.assert_close(columns["energy"], vmap(energy)(metric.value, proposal))
    torch.testing.assert_close(columns["acceptance_rate"], end.value.sum_acceptance / 2)
    torch.testing.assert_close(columns["step_size"], STEP_SIZE)


def test_the_last_draw_of_warm_up_adopts_the_averaged_step_size() -> None:
    adaptation, _, _ = learnt((YES, YES, NO))
    torch.testing.assert_close(adaptation.step_size[0], adaptation.step.log_average[0].exp())
