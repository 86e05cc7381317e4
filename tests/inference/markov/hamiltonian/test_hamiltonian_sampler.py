"""Chains of HMC and NUTS: one sequence of draws, whatever runs them, and a start, windows and interrupts that are right."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.engine import fleet, loops, pytree, runner
from bnnzoo.engine.fleet import BatchedCopies, NativeCopies
from bnnzoo.engine.torch_private import LoweringWarning
from bnnzoo.inference import NUTS, fit
from bnnzoo.inference.markov.adaptation import DIVERGED, growing_windows
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings
from bnnzoo.inference.markov.hamiltonian import adaptation_windows
from bnnzoo.inference.markov.hamiltonian.adaptation_windows import Windows
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import STATS, HamiltonianProgram
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianChains, HamiltonianSampler
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Phase, drift, energy
from bnnzoo.inference.markov.hamiltonian.nuts import NUTSKernel
from bnnzoo.testing import linear_gaussian
from bnnzoo.testing.monte_carlo import check_moments
from tests.helpers.executors import InProcess
from tests.helpers.native import TARGET, density, when_native_pays

KERNELS = {"NUTS": NUTSKernel(8), "HMC": HMCKernel(1.5, 0.5, 100)}
ENGINES = ["native", "graph", pytest.param("python", marks=pytest.mark.slow)]
WIDTHS = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)


def widths() -> None:
    pyro.sample("z", dist.Normal(torch.zeros_like(WIDTHS), WIDTHS).to_event(1))


def of_widths() -> LogDensity:
    return build_density(widths, dtype=torch.float64)


def chains(engine: Any = "graph", num_chains: int = 2, first_chain: int = 0, **settings: Any) -> HamiltonianChains:
    kernel = settings.pop("kernel", KERNELS["NUTS"])
    target = settings.pop("target", None) or density()
    settings = {"num_warmup": 20, "num_draws": 5, "step_size": 0.4} | settings
    theta = target.init(256, 0)[first_chain : first_chain + num_chains]
    return HamiltonianChains(kernel, target, HamiltonianSettings(**settings), theta, 5, first_chain, engine)


def finished(loop: HamiltonianChains, budget: int | None = None) -> HamiltonianChains:
    while int(loop.counts.min()) < loop.settings.num_warmup + loop.settings.num_draws:
        if budget is not None:
            loop.fleet._budget = budget  # type: ignore[union-attr]
        loop.advance()
    return loop


def check_same(loop: HamiltonianChains, reference: HamiltonianChains) -> None:
    assert torch.equal(loop.draws, reference.draws) and torch.equal(loop.stats, reference.stats)


@pytest.fixture(scope="module")
def reference() -> HamiltonianChains:
    found = finished(chains("native"))
    assert found.fleet.how == "compiled"
    return found


@pytest.mark.parametrize("engine", ["graph", pytest.param("python", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("mass", ["auto", "diagonal", "dense", "fisher", "low_rank"])
def test_every_engine_draws_the_same(name: str, mass: Any, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are short: dual averaging lets differences in rounding grow twentyfold with every draw."""
    monkeypatch.setattr(adaptation_windows, "windows_for", lambda mass_matrix, num_warmup: (0, 4, 8))
    how: dict[str, Any] = {"kernel": KERNELS[name], "mass_matrix": mass, "num_warmup": 12, "num_draws": 8}
    native, other = (finished(chains(each, **how)) for each in ("native", engine))
    assert native.fleet.how == "compiled" and other.fleet.how == {"graph": "traced", "python": "eager"}[engine]
    torch.testing.assert_close(other.draws, native.draws, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(other.stats, native.stats, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ["native", "graph"])
@pytest.mark.parametrize("name", KERNELS)
def test_company_does_not_matter(name: str, engine: str) -> None:
    """The same chain among 1, 2, 32, 33 and 256: bit by bit where each runs on its own, but for rounding in a batch.

    Warm-up lets the differences of batches of other sizes grow: to 2e-7 for HMC, less than 1e-9 for NUTS.
    """
    alone, *others = (
        finished(chains(engine, number, first, num_draws=3, kernel=KERNELS[name]))
        for number, first in ((1, 1), (2, 0), (32, 0), (33, 0), (256, 0))
    )
    rounding = {"HMC": 1e-6, "NUTS": 1e-9}[name]
    for loop in others:
        if engine == "native":
            assert torch.equal(loop.draws[1], alone.draws[0]) and torch.equal(loop.stats[1], alone.stats[0])
        else:
            torch.testing.assert_close(loop.draws[1], alone.draws[0], rtol=rounding, atol=rounding)


def test_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    loops_of = []
    for number in (1, 2, 3):
        monkeypatch.setattr(fleet, "num_cores", lambda number=number: number)
        loops_of.append(finished(chains("native", 3)))
    one, two, three = loops_of
    assert [each.fleet.num_threads for each in loops_of] == [1, 2, 3]  # type: ignore[union-attr]
    check_same(two, one)
    check_same(three, one)


def test_lengths_of_runs_do_not_matter(reference: HamiltonianChains) -> None:
    check_same(finished(chains("native"), budget=5), reference)


def test_full_buffers_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = finished(chains("native", num_draws=11))
    monkeypatch.setattr(fleet, "MAX_ROWS", 3)
    pieces = chains("native", num_draws=11)
    assert pieces.fleet.rows[0].shape[1] == 4  # type: ignore[union-attr]
    check_same(finished(pieces), whole)


def test_other_numbers_of_draws_share_native_code() -> None:
    """Only the first of them is traced and compiled."""
    first, second = chains("native", num_draws=3), chains("native", num_draws=12)
    assert first.fleet.chunk._function is second.fleet.chunk._function  # type: ignore[union-attr]
    assert torch.equal(finished(first).draws, finished(second).draws[:, :3])


@pytest.mark.parametrize("engines", [("native", "native"), ("graph", "graph"), ("native", "graph")])
@pytest.mark.parametrize("num_runs", [2, 16])
def test_a_snapshot_goes_on_with_the_very_next_step(
    engines: tuple[str, str], num_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "SECONDS_PER_CHUNK", 0.0)
    first, second = engines
    broken_off, other, whole = chains(first), chains(second), finished(chains(second))
    other.draws += 7.0  # a checkpoint puts earlier draws there, and they stay
    for _ in range(num_runs):
        if first == "native":
            broken_off.fleet._budget = 5  # type: ignore[union-attr]
        broken_off.advance()
    kept = (broken_off.counts - 20).clamp(0, 5).tolist()
    other.restore(broken_off.snapshot())
    finished(other)
    accuracy = 1e-6 if first != second else 0.0
    for chain, num in enumerate(kept):
        assert bool((other.draws[chain, :num] == 7.0).all())
        torch.testing.assert_close(other.draws[chain, num:], whole.draws[chain, num:], rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_step_size_is_where_acceptance_crosses(name: str, engine: Any) -> None:
    loop = chains(engine, kernel=KERNELS[name], step_size=None)
    resting, target = loop.fleet.resting, density()
    value, gradient = target.value_and_grad(resting.trajectory.proposal.theta, *target.data)
    torch.testing.assert_close(resting.trajectory.proposal.log_density, value)
    torch.testing.assert_close(resting.trajectory.proposal.gradient, gradient)
    assert loop.num_gradients == 0
    momentum = resting.trajectory.proposal.momentum  # of the identity metric

    def acceptance(size: Tensor) -> Tensor:
        first = Phase(resting.trajectory.proposal.theta, momentum, gradient, value)
        theta, halfway = vmap(drift)(resting.metric, first, size)
        there, slope = target.value_and_grad(theta, *target.data)
        last = Phase(theta, halfway + 0.5 * size[:, None] * slope, slope, there)
        return (vmap(energy)(resting.metric, first) - vmap(energy)(resting.metric, last)).exp()

    here, up, down = (acceptance(factor * resting.adaptation.step_size) > 0.8 for factor in (1.0, 2.0, 0.5))
    assert bool(((here != up) | (here != down)).all())


@pytest.mark.parametrize("engine", ["native", "graph"])
def test_a_step_size_that_is_given_is_where_tuning_begins(engine: str) -> None:
    assert chains(engine, step_size=0.25).tuned["step_size"].tolist() == [0.25, 0.25]


@pytest.mark.parametrize("kernel", [NUTSKernel(8), HMCKernel(1.5, 0.5, 50)])
@pytest.mark.parametrize("engine", ["native", pytest.param("graph", marks=pytest.mark.slow)])
def test_chains_end_near_the_acceptance_asked_for(kernel: Kernel, engine: str) -> None:
    how: dict[str, Any] = {"num_warmup": 150, "num_draws": 100, "step_size": None}
    loop = finished(chains(engine, target=of_widths(), kernel=kernel, **how))
    rates = loop.stats[..., STATS.index("acceptance_rate")].mean(1)
    assert bool(((rates > 0.7) & (rates < 0.97)).all()), rates


@pytest.mark.parametrize("engine", ["native", "graph"])
def test_windows_collect_the_draws_between_their_ends(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two windows and no others, the gradients there with them, and none after the last one."""
    monkeypatch.setattr(fleet, "SECONDS_PER_CHUNK", 0.0)
    how: dict[str, Any] = {"num_warmup": 200, "num_draws": 5, "step_size": 0.1, "kernel": HMCKernel(0.3, 0.0, 2)}
    collected: dict[int, Tensor] = {}
    adapt = Windows.adapt

    def recorded(self: Windows, resting: Any, which: Tensor, number: int, count: int) -> Tensor:
        theta, stats, gradient = (each[which, :number][0].clone() for each in self.collected)
        collected[count] = theta
        torch.testing.assert_close(gradient, -theta / WIDTHS**2)
        torch.testing.assert_close(stats[:, 0], dist.Normal(torch.zeros_like(WIDTHS), WIDTHS).log_prob(theta).sum(1))
        return adapt(self, resting, which, number, count)

    monkeypatch.setattr(Windows, "adapt", recorded)
    loop, thetas = chains(engine, 1, target=of_widths(), **how), []
    while int(loop.counts.min()) < 205:
        if engine == "native":
            loop.fleet._budget = 1  # type: ignore[union-attr]  # a step at a time, so that every draw is seen
        loop.advance()
        resting = loop.fleet.resting
        if int(resting.counters.draws[0]) > len(thetas):
            thetas.append(resting.trajectory.proposal.theta[0].clone())
    ends = growing_windows(200)
    assert list(collected) == list(ends[1:])
    for i, (end, theta) in enumerate(collected.items()):
        torch.testing.assert_close(theta, torch.stack(thetas[ends[max(i - 1, 0)] : end]))
    assert int(loop.windows.counts.sum()) == 0 and torch.equal(loop.draws[0], torch.stack(thetas[200:]))


@pytest.mark.parametrize("engine", ["native", pytest.param("graph", marks=pytest.mark.slow)])
def test_warm_up_ends_once_it_has_converged(engine: str) -> None:
    """After the window that ends at 337 draws, and with a last window of the same length as ever."""
    how: dict[str, Any] = {"num_warmup": 1000, "num_draws": 20, "step_size": None, "target": of_widths()}
    loop = finished(chains(engine, **how))
    assert loop.tuned["num_warmup"].tolist() == [487, 487]
    whole = finished(chains("native", mass_matrix="diagonal", **how))
    assert whole.tuned["num_warmup"].tolist() == [1000, 1000]
    assert bool((loop.fleet.moving.num_leapfrog < 0.7 * whole.fleet.moving.num_leapfrog).all())
    rates = loop.stats[..., STATS.index("acceptance_rate")].mean(1)
    assert bool(((rates > 0.7) & (rates < 0.97)).all()), rates


def test_chains_that_have_not_converged_warm_up_to_the_end() -> None:
    """In a funnel scales depend on where a chain is."""

    def funnel() -> None:
        width = pyro.sample("width", dist.Normal(torch.zeros(()), 3.0))
        pyro.sample("x", dist.Normal(0.0, (0.5 * width).exp().expand(9)).to_event(1))

    target = build_density(funnel, dtype=torch.float64)
    loop = finished(chains("native", 4, num_warmup=1000, num_draws=5, step_size=None, target=target))
    assert loop.tuned["num_warmup"].tolist() == [1000] * 4


def test_a_chain_ends_its_warm_up_whatever_others_do() -> None:
    how: dict[str, Any] = {"num_warmup": 1000, "num_draws": 5, "step_size": None, "target": of_widths()}
    alone, among = (finished(chains("native", number, first, **how)) for number, first in ((1, 1), (3, 0)))
    assert torch.equal(alone.draws[0], among.draws[1])


def test_chains_on_their_way_keep_their_mass_matrix_and_forget_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation_windows, "drifts", lambda lp, size: torch.tensor([True, False])[: len(lp)])
    loop = chains("graph", mass_matrix="fisher", target=of_widths())
    loop.windows.collected[0].normal_()
    loop.windows.collected[2].normal_()
    loop.windows.counts.fill_(10)
    loop.windows.close(loop.fleet.resting, torch.tensor([0, 1]), 10)
    assert loop.windows.counts.tolist() == [0, 10]
    inverse = loop.tuned["inverse_mass"]
    assert bool((inverse[0] == 1).all()) and bool((inverse[1] != 1).all())
    loop.windows.counts.fill_(10)
    loop.windows.close(loop.fleet.resting, torch.tensor([0, 1]), 17)  # the last one is taken as it is
    assert bool((loop.tuned["inverse_mass"] != 1).all())


@pytest.mark.parametrize("engine", ["native", "graph"])
def test_a_snapshot_holds_the_draws_of_open_windows(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "SECONDS_PER_CHUNK", 0.0)
    how: dict[str, Any] = {"num_warmup": 60, "num_draws": 5, "mass_matrix": "low_rank", "target": of_widths()}
    broken_off, other, whole = (chains(engine, **how) for _ in range(3))
    while int(broken_off.counts.min()) < 24:
        if engine == "native":
            broken_off.fleet._budget = 5  # type: ignore[union-attr]
        broken_off.advance()
    assert int(broken_off.windows.counts.max()) > 0
    other.restore(broken_off.snapshot())
    other.draws += broken_off.draws  # a checkpoint puts earlier draws there
    other.stats += broken_off.stats
    check_same(finished(other), finished(whole))


@pytest.mark.slow
def test_every_chain_estimates_its_own_scales() -> None:
    how: dict[str, Any] = {"num_warmup": 300, "num_draws": 1, "step_size": None}
    loop = finished(
        chains("native", 4, target=of_widths(), mass_matrix="diagonal", **how)
    )  # gradients would agree exactly
    sd = loop.tuned["inverse_mass"].sqrt()
    torch.testing.assert_close(sd.mean(0), WIDTHS, rtol=0.25, atol=0.0)
    assert len(sd[:, 0].unique()) == 4


def trend(year: Tensor, temperature: Tensor) -> None:
    """A line through years that are not centred: intercept and slope have a correlation of almost -1."""
    alpha = pyro.sample("alpha", dist.Normal(9.0, 100.0))
    beta = pyro.sample("beta", dist.Normal(0.0, 1 / 30))
    sigma = pyro.sample("sigma", dist.HalfNormal(10.0))
    with pyro.plate("years", len(year)):
        pyro.sample("temperature", dist.Normal(alpha + beta * year, sigma), obs=temperature)


@pytest.mark.parametrize("seed", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_steps_are_stable_where_early_windows_see_a_part_of_the_posterior_only(seed: int) -> None:
    generator = torch.Generator().manual_seed(0)
    year = torch.arange(3952.0, 4014.0, dtype=torch.float64)
    temperature = 9 + 0.02 * (year - 3983) + torch.randn(62, generator=generator, dtype=torch.float64)
    target = build_density(trend, year, temperature, dtype=torch.float64)
    settings = HamiltonianSettings(num_chains=3, num_draws=200)
    loop = HamiltonianSampler(NUTSKernel(10), settings).begin(target, target.init(3, seed), seed, 0)
    assert loop.fleet.how == "compiled"
    rates = finished(loop).stats[..., STATS.index("acceptance_rate")].mean(1)
    assert bool(((rates > 0.7) & (rates < 0.97)).all()), rates


def test_a_divergence_shortens_the_step_that_settles_whatever_the_mean_acceptance() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data, dtype=torch.float64)
    settings = HamiltonianSettings(num_chains=1, num_warmup=300)
    loop = HamiltonianSampler(NUTSKernel(5), settings, "python").begin(density, density.init(1, 0), 0, 0)
    program = HamiltonianProgram(NUTSKernel(5))
    moving, resting = (
        pytree.tree_map(lambda value: value[0], each) for each in (loop.fleet.moving, loop.fleet.resting)
    )
    resting = resting._replace(counters=resting.counters._replace(draws=torch.tensor(290)))
    steps = []
    for diverging in (False, True):
        end = moving.end._replace(
            diverging=torch.tensor(diverging), num_steps=torch.tensor(4), sum_acceptance=torch.tensor(3.4).double()
        )
        _, learnt, _ = program._learnt(moving._replace(end=end), resting)
        steps.append(float(learnt.adaptation.step_size.log() - resting.adaptation.step.log_average))
    assert steps == pytest.approx([0.0, 0.1 * (DIVERGED - 0.85)])  # it was accepted as often as is wanted


def test_an_interrupted_run_returns_the_draws_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    target, gather = linear_gaussian(), BatchedCopies.gather
    monkeypatch.setattr(fleet, "SECONDS_PER_CHUNK", 0.0)

    def interrupting(batch: BatchedCopies, into: Any, counts: Tensor, copies: Tensor) -> None:
        gather(batch, into, counts, copies)
        if len(into) == 2 and int(counts.min()) >= 20:  # draws and statistics, not what warm-up collects
            raise KeyboardInterrupt

    monkeypatch.setattr(BatchedCopies, "gather", interrupting)
    method = NUTS(num_chains=2, num_warmup=50, num_draws=100)
    posterior = fit(target.model, method, *target.data, engine="graph")
    assert posterior.draws().shape == (2, 20, 3)
    assert not posterior.info.complete
    assert bool((posterior.draws() != 0).all())


@pytest.mark.slow
def test_chains_do_not_depend_on_their_group() -> None:
    target = linear_gaussian()
    start = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    settings: dict[str, Any] = {"num_chains": 3, "num_warmup": 30, "num_draws": 10, "init": start}
    together = fit(target.model, NUTS(**settings), *target.data, seed=6)
    apart = fit(target.model, NUTS(**settings), *target.data, seed=6, executor=InProcess())
    torch.testing.assert_close(together.draws(), apart.draws(), rtol=1e-6, atol=1e-6)
    assert apart.info.num_gradients > 0 and apart.info.complete


def test_arithmetic_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        chains("native").advance()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no such operation")


FAILURES = [
    (loops, "_traced", refuse),
    (runner, "inner_graph", lambda *args, log, **named: log.refused("native code", "no such operation")),
    (runner, "NativeCopies", refuse),
]


@pytest.mark.parametrize(("place", "name", "failing"), FAILURES)
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_native_runs_in_one_batch_and_says_why(
    place: Any, name: str, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    when_native_pays(monkeypatch, 0)
    monkeypatch.setattr(loops, "COMPILED", {})
    monkeypatch.setattr(loops, "compiled_before", lambda name: None)
    monkeypatch.setattr(place, name, failing)
    loop = chains("auto")
    assert isinstance(loop.fleet, BatchedCopies)
    assert any("no such operation" in reason for reason in loop.log.report().reasons)
    with pytest.warns(LoweringWarning, match=r"engine='native' runs as traced graphs instead: .*no such operation"):
        chains("native")


def test_the_choice_of_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(chains("auto").fleet, BatchedCopies)  # too short
    when_native_pays(monkeypatch, 0)
    assert isinstance(chains("auto").fleet, NativeCopies)
    assert isinstance(chains("auto", num_chains=33, target=of_widths()).fleet, NativeCopies)  # the settings say 4
    assert isinstance(fit_of(num_chains=1025), BatchedCopies)


def fit_of(**settings: Any) -> Any:
    start = of_widths().init(33, 0)
    how = HamiltonianSettings(num_warmup=5, num_draws=5, **settings)
    return HamiltonianSampler(KERNELS["NUTS"], how).begin(of_widths(), start, 0, 0).fleet


@pytest.mark.slow
def test_torchs_compiler_gives_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are the same for a while, until rounding has grown."""
    ours = finished(chains("native", num_draws=3))
    monkeypatch.setattr(loops, "COMPILED", {})
    monkeypatch.setattr(loops, "compiled_before", lambda name: None)
    monkeypatch.setattr(loops, "compile_in_cpp", refuse)
    theirs = finished(chains("native", num_draws=3))
    torch.testing.assert_close(ours.draws, theirs.draws, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("mass", ["auto", "diagonal", "dense", "fisher", "low_rank"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_gaussian_posterior(name: str, mass: Any, dtype: torch.dtype) -> None:
    target = build_density(TARGET.model, *(value.to(dtype) for value in TARGET.data), dtype=dtype)
    how: dict[str, Any] = {"num_warmup": 400, "num_draws": 2000, "mass_matrix": mass, "step_size": None}
    loop = finished(chains("native", 4, target=target, kernel=KERNELS[name], **how))
    draws = target.constrain(loop.draws)["w"].double().numpy()
    check_moments("w", draws, TARGET.mean["w"], TARGET.sd["w"])
    assert float(loop.stats[..., STATS.index("diverging")].sum()) == 0
