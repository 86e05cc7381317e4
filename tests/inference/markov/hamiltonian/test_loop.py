"""The loop over Hamiltonian kernels: batches, interruptions, and the search for a step size."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.density import build_density
from bnnzoo.inference import NUTS, fit
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.loop import HamiltonianLoop, _acceptance
from bnnzoo.inference.markov.settings import HamiltonianSettings
from bnnzoo.testing import linear_gaussian
from tests.helpers.executors import InProcess


@pytest.mark.slow
def test_chains_do_not_depend_on_their_batch() -> None:
    target = linear_gaussian()
    start = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    settings: dict[str, Any] = {"num_warmup": 30, "num_draws": 10}
    together = fit(target.model, NUTS(num_chains=3, init=start, **settings), *target.data, seed=6)
    apart = fit(target.model, NUTS(num_chains=3, init=start, **settings), *target.data, seed=6, executor=InProcess())
    torch.testing.assert_close(together.draws(), apart.draws(), rtol=1e-6, atol=1e-6)
    assert apart.info.num_gradients > 0 and apart.info.complete


def test_interrupted_run_returns_the_draws_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    target = linear_gaussian()
    kept = HamiltonianLoop._keep

    def interrupting(loop: HamiltonianLoop, chains: Tensor, theta: Tensor, stats: Tensor) -> None:
        kept(loop, chains, theta, stats)
        if int(loop.counts.min()) >= 70:  # in the middle of a step
            raise KeyboardInterrupt

    monkeypatch.setattr(HamiltonianLoop, "_keep", interrupting)
    posterior = fit(target.model, NUTS(num_chains=2, num_warmup=50, num_draws=100), *target.data)
    assert posterior.draws().shape == (2, 20, 3)
    assert not posterior.info.complete
    assert bool((posterior.draws() != 0).all())


def widths() -> None:
    pyro.sample("z", dist.Normal(torch.zeros(3), torch.tensor([1.0, 0.1, 0.3])).to_event(1))


def loop_of(**settings: Any) -> HamiltonianLoop:
    density = build_density(widths)
    kernel = HMCKernel(trajectory_length=1.5, jitter=0.5, max_steps=100)
    theta = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 0.1, 0.3])
    return HamiltonianLoop(kernel, density, HamiltonianSettings(**settings), theta, 0, 0)


def test_the_search_ends_where_one_step_is_accepted_about_as_often_as_not() -> None:
    loop = loop_of(num_warmup=10, num_draws=1)
    found = loop.state.adaptation.value.step_size
    acceptances = torch.stack([_acceptance(loop, factor * found) for factor in (0.5, 1.0, 2.0)])
    crossed = (acceptances[1] > 0.8) != (acceptances[0] > 0.8)
    assert bool((crossed | ((acceptances[1] > 0.8) != (acceptances[2] > 0.8))).all())


def test_a_step_size_that_is_given_is_where_tuning_begins() -> None:
    loop = loop_of(num_warmup=10, num_draws=1, step_size=0.25)
    assert loop.state.adaptation.value.step_size.tolist() == [0.25] * 4
    assert loop.num_leaps == 1  # no search


@pytest.mark.slow
def test_every_chain_estimates_its_own_scales() -> None:
    loop = loop_of(num_warmup=300, num_draws=1)
    while int(loop.counts.min()) <= loop._ends[-1]:
        loop.advance()
    sd = loop.state.metric.value.inverse_mass.sqrt()
    torch.testing.assert_close(sd.mean(0), torch.tensor([1.0, 0.1, 0.3]), rtol=0.25, atol=0.0)
    assert len(sd[:, 0].unique()) == 4


def test_a_snapshot_holds_state_streams_and_calls() -> None:
    loop, other = loop_of(num_warmup=20, num_draws=5), loop_of(num_warmup=20, num_draws=5)
    for _ in range(12):
        loop.advance()
    other.restore(loop.snapshot())
    assert other.num_leaps == loop.num_leaps and [s.num_calls for s in other.steps] == [s.num_calls for s in loop.steps]
    for each in (loop, other):
        each.advance()
    assert torch.equal(loop.counts, other.counts)
    for mine, theirs in zip(loop.state[:4], other.state[:4], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine.groups, theirs.groups, strict=True))
