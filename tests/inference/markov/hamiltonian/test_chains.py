"""Chains in native code: right posteriors, and draws that depend on nothing but the seed and the chain's number."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bnnzoo.core.density import build_density
from bnnzoo.engine import loops as lowered_loops
from bnnzoo.engine.graphs import trace
from bnnzoo.engine.stretches import words_of
from bnnzoo.inference.markov.hamiltonian import loop as loop_module
from bnnzoo.inference.markov.hamiltonian import starting
from bnnzoo.inference.markov.hamiltonian.chains import NativeChains
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric, Phase, drift, energy, momentum_from
from bnnzoo.inference.markov.hamiltonian.loop import HamiltonianLoop, HamiltonianSampler
from bnnzoo.inference.markov.hamiltonian.native import NUM_STREAMS
from bnnzoo.inference.markov.hamiltonian.nuts import NUTSKernel
from bnnzoo.inference.markov.noise import keys_of, normals
from bnnzoo.inference.markov.protocols import Loop
from bnnzoo.inference.markov.settings import HamiltonianSettings
from bnnzoo.testing.monte_carlo import check_moments
from tests.helpers.native import GRADIENT, TARGET, density, traced, when_native_pays

KERNELS = {"NUTS": NUTSKernel(8), "HMC": HMCKernel(1.5, 0.5, 100)}
HOWS = [False, pytest.param(True, marks=pytest.mark.slow)]


def chains(
    kernel: Kernel = KERNELS["NUTS"],
    num_chains: int = 2,
    first_chain: int = 0,
    mass: Any = "diagonal",
    num_draws: int = 5,
    **how: Any,
) -> NativeChains:
    settings = HamiltonianSettings(num_warmup=20, num_draws=num_draws, mass_matrix=mass, step_size=0.4)
    theta = density().init(4, 0)[first_chain : first_chain + num_chains]
    return NativeChains(kernel, GRADIENT, settings, theta, 5, first_chain, **how)


def finished(loop: NativeChains, budget: int | None = None) -> NativeChains:
    while int(loop.counts.min()) < loop.settings.num_warmup + loop.settings.num_draws:
        loop._budget = budget or loop._budget
        loop.advance()
    return loop


@pytest.fixture(scope="module", params=HOWS)
def reference(request: pytest.FixtureRequest) -> NativeChains:
    return finished(chains(num_threads=1, compiles=request.param))


def check_same(loop: NativeChains, reference: NativeChains) -> None:
    assert torch.equal(loop.draws, reference.draws) and torch.equal(loop.stats, reference.stats)


def check_same_draws(loop: NativeChains, reference: NativeChains) -> None:
    assert torch.equal(loop.draws, reference.draws)


def test_threads_do_not_matter(reference: NativeChains) -> None:
    compiles = reference.stretch.how == "compiled"
    assert reference.num_threads == 1
    check_same(finished(chains(num_threads=2, compiles=compiles)), reference)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("compiles", HOWS)
def test_chains_begin_at_their_log_density_with_a_step_size_that_crosses(name: str, compiles: bool) -> None:
    settings, theta = HamiltonianSettings(num_warmup=20, num_draws=5), density().init(2, 0)
    loop = NativeChains(KERNELS[name], GRADIENT, settings, theta, 5, 0, compiles=compiles)

    def evaluated(point: torch.Tensor, momentum: torch.Tensor) -> Phase:
        value, gradient = GRADIENT.graph(*GRADIENT.constants, point, *GRADIENT.tensors)
        return Phase(point, momentum, gradient, value)

    for number, start in enumerate(theta):
        metric = loop._fixed[number].metric
        noise = normals(keys_of(5, number, NUM_STREAMS)[0], torch.arange(len(start)), start.dtype)
        first = evaluated(start, momentum_from(metric, noise))

        def acceptance(size: torch.Tensor, first: Phase = first, metric: Metric = metric) -> float:
            point, halfway = drift(metric, first, size)
            moved = evaluated(point, halfway)
            moved = moved._replace(momentum=halfway + 0.5 * size * moved.gradient)
            return float((energy(metric, first) - energy(metric, moved)).exp())

        begun, size = loop._chains[number], loop.tuned["step_size"][number]
        torch.testing.assert_close(begun.trajectory.proposal.log_density, first.log_density)
        torch.testing.assert_close(begun.trajectory.proposal.gradient, first.gradient)
        assert int(begun.counters.leaps) == 0
        assert (acceptance(2 * size) > 0.8) != (acceptance(size) > 0.8) or (acceptance(size / 2) > 0.8) != (
            acceptance(size) > 0.8
        )


def test_graphs_are_told_apart_by_what_they_compute() -> None:
    def words(function: Callable[..., tuple[torch.Tensor, ...]], size: int = 3) -> str:
        return words_of(trace(function, [torch.ones(size)])[0])

    assert words(lambda x: (x.exp() + 1,)) == words(lambda z: (1 + z.exp(),)) != words(lambda x: (x.exp() + 2,))
    assert words(lambda x: (x.sin(), x.cos())) != words(lambda x: (x.cos(), x.sin()))


@pytest.mark.slow
def test_one_two_or_three_threads() -> None:
    one, two, three = (finished(chains(num_chains=3, num_threads=number)) for number in (1, 2, 3))
    assert [loop.num_threads for loop in (one, two, three)] == [1, 2, 3]
    check_same(two, one)
    check_same(three, one)


@pytest.mark.parametrize("budget", [5])
def test_lengths_of_stretches_do_not_matter(reference: NativeChains, budget: int) -> None:
    compiles = reference.stretch.how == "compiled"
    check_same(finished(chains(compiles=compiles), budget), reference)


@pytest.mark.slow
def test_full_buffers_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = finished(chains(compiles=False, num_draws=11))
    monkeypatch.setattr(starting, "MAX_ROWS", 3)
    pieces = chains(compiles=False, num_draws=11)
    assert len(pieces._chains[0].draws) == 4 and pieces._chains[0].draws is not whole._chains[0].draws
    check_same(finished(pieces), whole)


def test_other_numbers_of_draws_share_native_code() -> None:
    """Only the first of them is traced and compiled."""
    first, second = chains(compiles=False, num_draws=3), chains(compiles=False, num_draws=12)
    assert first.stretch._function is second.stretch._function
    assert torch.equal(finished(first).draws, finished(second).draws[:, :3])


def test_company_does_not_matter(reference: NativeChains) -> None:
    alone = finished(chains(num_chains=1, first_chain=1, compiles=reference.stretch.how == "compiled"))
    assert torch.equal(alone.draws[0], reference.draws[1])


@pytest.mark.parametrize("num_stretches", [2, 16])
def test_goes_on_from_a_snapshot(reference: NativeChains, num_stretches: int) -> None:
    compiles = reference.stretch.how == "compiled"
    broken_off, other = chains(compiles=compiles), chains(compiles=compiles)
    other.draws += 7.0  # a checkpoint puts earlier draws there, and they stay
    for _ in range(num_stretches):
        broken_off._budget = 5
        broken_off.advance()
    kept = (broken_off.counts - 20).clamp(0, 5).tolist()
    other.restore(broken_off.snapshot())
    finished(other)
    for chain, num in enumerate(kept):
        assert bool((other.draws[chain, :num] == 7.0).all())
        assert torch.equal(other.draws[chain, num:], reference.draws[chain, num:])


@pytest.mark.parametrize(("mass", "num_draws"), [("diagonal", 7), ("dense", 2)])
def test_snapshots_keep_matrices_as_long_as_the_buffer_of_draws(mass: str, num_draws: int) -> None:
    """The stack of leaves has eight rows here, and the covariance three."""
    how = {"mass": mass, "num_draws": num_draws, "num_chains": 1, "compiles": False}
    whole, broken_off, other = finished(chains(**how)), chains(**how), chains(**how)
    for _ in range(9):
        broken_off._budget = 5
        broken_off.advance()
    other.restore(broken_off.snapshot())
    other.draws.copy_(broken_off.draws)
    check_same_draws(finished(other), whole)


def fit_of(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Loop:
    """Start the chains of a fit that is expected to be long enough for native code."""
    when_native_pays(monkeypatch, 0)
    sampler = HamiltonianSampler(KERNELS["NUTS"], HamiltonianSettings(num_warmup=5, num_draws=5, **settings))
    return sampler.begin(density(), density().init(2, 0), 0, 0)


def leave_to_torchs_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no loop be written in C++ here, nor any be found that was."""
    monkeypatch.setattr(lowered_loops, "COMPILED", {})
    monkeypatch.setattr(lowered_loops, "compiled_before", lambda name: None)
    monkeypatch.setattr(lowered_loops, "compile_in_cpp", lambda graph: None)


@pytest.mark.slow
def test_torchs_compiler_gives_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are the same for a while, until rounding has grown."""
    ours = finished(chains(num_draws=3))
    leave_to_torchs_compiler(monkeypatch)
    theirs = finished(chains(num_draws=3))
    assert ours.stretch.how == theirs.stretch.how == "compiled"
    assert ours.stretch._function is not theirs.stretch._function
    torch.testing.assert_close(ours.draws, theirs.draws, rtol=1e-6, atol=1e-6)


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no such operation")


@pytest.mark.parametrize(
    ("place", "name", "failing"),
    [
        (lowered_loops, "trace_loops", refuse),
        pytest.param(lowered_loops, "compile_loops", lambda *args: None, marks=pytest.mark.slow),
        (lowered_loops, "compile_loops", lambda *args: refuse),
        (loop_module, "gradient_of", lambda density: None),
        pytest.param(loop_module, "NativeChains", refuse, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_native_runs_in_one_batch(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, failing: Any
) -> None:
    leave_to_torchs_compiler(monkeypatch)
    monkeypatch.setattr(place, name, failing)
    assert isinstance(fit_of(monkeypatch), HamiltonianLoop)


def test_many_chains_and_short_runs_stay_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(fit_of(monkeypatch, num_chains=33), HamiltonianLoop)
    sampler = HamiltonianSampler(KERNELS["NUTS"], HamiltonianSettings(num_warmup=5, num_draws=5))
    monkeypatch.undo()
    assert isinstance(sampler.begin(density(), density().init(2, 0), 0, 0), HamiltonianLoop)


def test_arithmetic_threads_are_given_back(reference: NativeChains) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        chains(compiles=reference.stretch.how == "compiled").advance()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_native_code_draws_what_the_graphs_draw() -> None:
    compiled, traced = finished(chains()), finished(chains(compiles=False))
    assert compiled.stretch.how == "compiled" and traced.stretch.how == "traced"
    torch.testing.assert_close(compiled.stats[:, :3, 3:5], traced.stats[:, :3, 3:5])
    torch.testing.assert_close(compiled.draws[:, :3], traced.draws[:, :3], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("mass", ["diagonal", "dense", "fisher"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_gaussian_posterior(name: str, mass: Any, dtype: torch.dtype) -> None:
    target = build_density(TARGET.model, *(value.to(dtype) for value in TARGET.data), dtype=dtype)
    settings = HamiltonianSettings(num_warmup=400, num_draws=2000, mass_matrix=mass)
    loop = finished(NativeChains(KERNELS[name], traced(target), settings, target.init(4, 0), 1, 0))
    assert loop.stretch.how == "compiled"
    draws = target.constrain(loop.draws)["w"].double().numpy()
    check_moments("w", draws, TARGET.mean["w"], TARGET.sd["w"])
    assert float(loop.stats[..., 5].sum()) == 0
