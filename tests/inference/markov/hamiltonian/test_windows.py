"""Warm-up of whole chains: the last mass matrix may be far from the one before, and the step size follows it."""

from itertools import pairwise

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.density import build_density
from bnnzoo.inference.markov.adaptation import Moments, settling_from, window_ends
from bnnzoo.inference.markov.hamiltonian import chains as native_chains
from bnnzoo.inference.markov.hamiltonian import windows
from bnnzoo.inference.markov.hamiltonian.chains import NativeChains
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric
from bnnzoo.inference.markov.hamiltonian.loop import HamiltonianLoop, HamiltonianSampler
from bnnzoo.inference.markov.hamiltonian.nuts import NUTSKernel
from bnnzoo.inference.markov.hamiltonian.starting import _schedule
from bnnzoo.inference.markov.hamiltonian.steps import STATS, stages_of
from bnnzoo.inference.markov.protocols import Loop
from bnnzoo.inference.markov.settings import HamiltonianSettings
from tests.helpers.native import traced

WIDTHS = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)


def widths() -> None:
    pyro.sample("z", dist.Normal(torch.zeros_like(WIDTHS), WIDTHS).to_event(1))


def trend(year: Tensor, temperature: Tensor) -> None:
    """A line through years that are not centred: intercept and slope have a correlation of almost -1."""
    alpha = pyro.sample("alpha", dist.Normal(9.0, 100.0))
    beta = pyro.sample("beta", dist.Normal(0.0, 1 / 30))
    sigma = pyro.sample("sigma", dist.HalfNormal(10.0))
    with pyro.plate("years", len(year)):
        pyro.sample("temperature", dist.Normal(alpha + beta * year, sigma), obs=temperature)


def acceptance(loop: Loop, num_draws: int) -> Tensor:
    """Return the mean acceptance probability ``[C]`` of the draws that are kept."""
    while int(loop.counts.min()) < num_draws:
        loop.advance()
    return loop.stats[..., STATS.index("acceptance_rate")].mean(1)


@pytest.mark.parametrize("seed", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_steps_are_stable_where_early_windows_see_a_part_of_the_posterior_only(seed: int) -> None:
    generator = torch.Generator().manual_seed(0)
    year = torch.arange(3952.0, 4014.0, dtype=torch.float64)
    temperature = 9 + 0.02 * (year - 3983) + torch.randn(62, generator=generator, dtype=torch.float64)
    density = build_density(trend, year, temperature, dtype=torch.float64)
    settings = HamiltonianSettings(num_chains=3, num_draws=200)
    loop = HamiltonianSampler(NUTSKernel(10), settings).begin(density, density.init(3, seed), seed, 0)
    assert loop.kind == "native"
    rates = acceptance(loop, 1200)
    assert bool(((rates > 0.7) & (rates < 0.97)).all()), rates


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (NUTSKernel(8), "native"),
        (HMCKernel(1.5, 0.5, 50), "batched"),
        pytest.param(NUTSKernel(8), "batched", marks=pytest.mark.slow),
        pytest.param(HMCKernel(1.5, 0.5, 50), "native", marks=pytest.mark.slow),
    ],
)
def test_both_loops_end_near_the_acceptance_asked_for(kernel: Kernel, kind: str) -> None:
    density = build_density(widths, dtype=torch.float64)
    settings = HamiltonianSettings(num_chains=2, num_warmup=150, num_draws=100)
    loop = HamiltonianSampler(kernel, settings).begin(density, density.init(2, 0), 0, 0, kind)
    rates = acceptance(loop, 250)
    assert bool(((rates > 0.7) & (rates < 0.97)).all()), rates


def test_both_loops_settle_the_step_size_over_the_same_draws() -> None:
    schedule = _schedule(HamiltonianSettings(num_warmup=200))
    counts = torch.arange(250)
    warm, settling, collecting = stages_of(counts, 200, (75, 100, 150), torch.device("cpu"))
    assert int(schedule.settle_from) == settling_from(200) == int(settling.nonzero()[0])
    assert warm.tolist() == (counts < 200).tolist()
    assert int(schedule.collect_from) == int(collecting.nonzero()[0])
    assert int(schedule.collect_until) == int(collecting.nonzero()[-1]) + 1


@pytest.mark.parametrize("native", [True, False])
def test_a_window_collects_the_draws_between_its_ends(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as it is wide, those and no others, and none after the last window."""
    density, kernel = build_density(widths, dtype=torch.float64), HMCKernel(0.3, 0.0, 2)
    settings, start = HamiltonianSettings(num_warmup=200, num_draws=5, step_size=0.1), density.init(1, 0)
    loop: Loop = (
        NativeChains(kernel, traced(density), settings, start, 0, 0, compiles=False)
        if native
        else HamiltonianLoop(kernel, density, settings, start, 0, 0)
    )
    module = native_chains if native else windows
    metric_from, collected = module.metric_from, []

    def recorded(moments: Moments) -> Metric:
        collected.append((int(moments.count), moments.mean.clone()))
        return metric_from(moments)

    monkeypatch.setattr(module, "metric_from", recorded)
    thetas: list[Tensor] = []
    while int(loop.counts.min()) < 205:
        if isinstance(loop, NativeChains):
            loop._budget = 1  # a proposal at a time, so that every draw is seen
        loop.advance()
        state = loop._chains[0].counters.draws if isinstance(loop, NativeChains) else loop.counts[0]
        if int(state) > len(thetas):
            trajectory = loop._chains[0].trajectory if isinstance(loop, NativeChains) else loop.state.trajectory.value
            thetas.append(trajectory.proposal.theta.flatten().clone())
    ends = window_ends(200)
    assert len(ends) > 2 and [number for number, _ in collected] == [b - a for a, b in pairwise(ends)]
    for (_, mean), (begin, end) in zip(collected, pairwise(ends), strict=True):
        torch.testing.assert_close(mean.flatten(), torch.stack(thetas[begin:end]).mean(0))
    learnt = loop._chains[0].adaptation if isinstance(loop, NativeChains) else loop.state.adaptation.value
    assert float(learnt.moments.count.sum()) == 0
