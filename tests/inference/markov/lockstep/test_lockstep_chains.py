"""Chains in lockstep on every engine: the same draws but for rounding, however their work is spread."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.engine import choose, fleet, runner
from bnnzoo.engine import loops as lowered_loops
from bnnzoo.engine.fleet import BatchedCopies, NativeCopies
from bnnzoo.inference import MAMS, MCLMC, ChEESHMC, fit
from bnnzoo.inference.markov.chain_settings import LockstepSettings
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical, Newtonian
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinChains, LangevinSampler, LangevinSettings
from bnnzoo.inference.markov.lockstep.lockstep_chains import LockstepChains
from bnnzoo.inference.markov.lockstep.motions import LangevinMotion, Motion, Trajectories
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectoryChains, TrajectorySampler
from bnnzoo.inference.markov.trajectory_length import jump_of_spread, squared_jump
from bnnzoo.testing import funnel, ill_conditioned, linear_gaussian, skewed
from bnnzoo.testing.monte_carlo import check_moments
from tests.helpers.executors import InProcess
from tests.helpers.native import TARGET, density, when_native_pays
from tests.helpers.samplers import BIAS

NAMES = ["MAMS", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ChEESHMC", "MCLMC"))]
BUDGET: dict[str, Any] = {"num_warmup": 6, "num_draws": 7, "step_size": 0.3}
TOTAL = 13


def chains_of(name: str, engine: Any = "native", num_chains: int = 3) -> LockstepChains[Any]:
    theta = density().init(num_chains, 0)
    if name == "MCLMC":
        settings = LangevinSettings(**BUDGET | {"step_size": 0.01}, steps_per_draw=4)
        return LangevinChains(density(), settings, theta, 5, 0, engine)
    dynamics, jump = (Microcanonical(), squared_jump) if name == "MAMS" else (Newtonian(), jump_of_spread)
    settings = LockstepSettings(**BUDGET, trajectory_length=1.5)
    return TrajectoryChains(dynamics, jump, density(), settings, theta, 5, 0, engine)


def native(chains: LockstepChains[Any]) -> NativeCopies:
    assert isinstance(chains.fleet, NativeCopies) and chains.fleet.how == "compiled"
    return chains.fleet


def finished(chains: LockstepChains[Any], budget: int | None = None) -> LockstepChains[Any]:
    while int(chains.counts.min()) < TOTAL:
        if budget is not None:
            native(chains)._budget = budget
        chains.advance()
    return chains


def check_same(one: LockstepChains[Any], other: LockstepChains[Any]) -> None:
    assert torch.equal(one.draws, other.draws) and torch.equal(one.stats, other.stats)
    assert one.num_gradients == other.num_gradients and one.num_rejected == other.num_rejected


@pytest.mark.parametrize("engine", ["graph", pytest.param("python", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_engines_draw_the_same_but_for_rounding(name: str, engine: str) -> None:
    compiled, other = finished(chains_of(name)), finished(chains_of(name, engine))
    assert native(compiled).how == "compiled" and isinstance(other.fleet, BatchedCopies)
    torch.testing.assert_close(compiled.draws, other.draws, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(compiled.stats, other.stats, rtol=1e-6, atol=1e-6)
    assert compiled.num_gradients == other.num_gradients and compiled.num_rejected == other.num_rejected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_do_not_matter(name: str, num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "THREADS_PAY_FROM", 0.0)
    one, many = chains_of(name), chains_of(name)
    native(one).num_threads, native(many).num_threads = 1, num_threads
    check_same(finished(one), finished(many))


@pytest.mark.parametrize("name", NAMES)
def test_lengths_of_chunks_do_not_matter(name: str) -> None:
    check_same(finished(chains_of(name), budget=1), finished(chains_of(name)))


def test_full_buffers_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = finished(chains_of("MAMS"))
    monkeypatch.setattr(fleet, "MAX_ROWS", 2)
    check_same(finished(chains_of("MAMS")), whole)


@pytest.mark.parametrize("until", [3, 9])
@pytest.mark.parametrize("engine", ["native", "graph"])
@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_goes_on_with_the_very_next_draw(
    name: str, engine: str, until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of warm-up, and of the draws that are kept."""
    monkeypatch.setattr(fleet, "SECONDS_PER_CHUNK", 0.0)  # one draw a call in a batch
    whole, broken_off, other = (chains_of(name, engine) for _ in range(3))
    while int(broken_off.counts.min()) < until:
        if engine == "native":
            native(broken_off)._budget = 1
        broken_off.advance()
    other.restore(broken_off.snapshot())
    other.draws[:], other.stats[:] = broken_off.draws, broken_off.stats
    check_same(finished(other), finished(whole))


def begun(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> str:
    """Start the chains of a fit that is expected to be long enough for native code, and return how they run."""
    when_native_pays(monkeypatch, 0)
    sampler = TrajectorySampler(Microcanonical(), squared_jump, LockstepSettings(**BUDGET, **settings))
    return sampler.begin(density(), density().init(2, 0), 0, 0).fleet.how


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no such operation")


@pytest.mark.parametrize(
    ("place", "name", "failing"),
    [
        (lowered_loops, "_traced", refuse),
        (lowered_loops, "compile_loops", lambda *args: None),
        (lowered_loops, "compile_loops", lambda *args: refuse),
        (runner, "inner_graph", lambda *args, **kwargs: None),
        (runner, "NativeCopies", refuse),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_native_runs_in_one_batch(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, failing: Any
) -> None:
    monkeypatch.setattr(lowered_loops, "COMPILED", {})
    monkeypatch.setattr(lowered_loops, "compiled_before", lambda name: None)
    monkeypatch.setattr(lowered_loops, "compile_in_cpp", lambda graph: None)
    monkeypatch.setattr(place, name, failing)
    assert begun(monkeypatch) == "traced"


def test_many_chains_and_short_runs_stay_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun(monkeypatch) == "compiled"
    assert begun(monkeypatch, num_chains=LockstepSettings.max_native_chains + 1) == "traced"
    monkeypatch.undo()
    sampler = LangevinSampler(LangevinSettings(**BUDGET))
    assert sampler.begin(density(), density().init(2, 0), 0, 0).fleet.how == "traced"


def test_arithmetic_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        finished(chains_of("MAMS"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_groups_on_an_executor_draw_what_they_draw_here(monkeypatch: pytest.MonkeyPatch) -> None:
    when_native_pays(monkeypatch, 0)
    method = MAMS(num_chains=4, num_groups=2, num_warmup=20, num_draws=10, max_steps=20)
    here, there = (fit(TARGET.model, method, *TARGET.data, executor=e) for e in (None, InProcess()))
    assert torch.equal(here.draws(), there.draws())


def test_an_interrupt_keeps_the_draws_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    method = MAMS(num_chains=2, num_warmup=20, num_draws=10, max_steps=20)
    whole: Any = fit(TARGET.model, method, *TARGET.data, engine="native")
    monkeypatch.setattr(fleet, "MAX_ROWS", 1)  # one draw a chunk
    advance = LockstepChains.advance

    def interrupted(chains: LockstepChains[Any]) -> None:
        if int(chains.counts.min()) == 24:
            raise KeyboardInterrupt
        advance(chains)

    monkeypatch.setattr(LockstepChains, "advance", interrupted)
    part: Any = fit(TARGET.model, method, *TARGET.data, engine="native")
    assert not part.info.complete
    assert torch.equal(part.draws(), whole.draws()[:, :4])


def test_the_engine_is_the_one_asked_for() -> None:
    method = MAMS(num_chains=2, num_warmup=20, num_draws=10, max_steps=20)
    for engine in ("native", "graph", "python"):
        posterior: Any = fit(TARGET.model, method, *TARGET.data, engine=engine)
        assert posterior.info.engine.engine == engine


def test_motions_are_motions() -> None:
    assert all(isinstance(motion, Motion) for motion in (Trajectories(Newtonian()), LangevinMotion()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MAMS, MCLMC])
def test_ends_without_a_density_are_rejected_and_counted(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def half(y: torch.Tensor) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        pyro.factor("border", torch.where(z[0] > 0, 0.0, torch.nan))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(z[1], 1.0), obs=y)

    length: Any = {"trajectory_length": 1.5, "max_steps": 6} if kind is MAMS else {"steps_per_draw": 4}
    method = kind(num_chains=2, num_warmup=20, num_draws=40, step_size=0.5, init=torch.ones(2, 2), **length)
    batched: Any = fit(half, method, torch.zeros(5), seed=2)
    when_native_pays(monkeypatch, 0)
    native: Any = fit(half, method, torch.zeros(5), seed=2)
    assert native.info.num_rejected > 0 and bool((native.draws()[..., 0] > 0).all())
    assert native.info.num_rejected == pytest.approx(batched.info.num_rejected, rel=0.5)
    torch.testing.assert_close(native.draws()[:, 0], batched.draws()[:, 0], rtol=1e-6, atol=1e-6)


METHODS = {"ChEESHMC": ChEESHMC, "MAMS": MAMS, "MCLMC": MCLMC}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", ["linear", "skewed", "ill-conditioned", "funnel"])
def test_posteriors(name: str, dtype: torch.dtype, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "linear": linear_gaussian,
        "skewed": lambda: skewed(num_rates=3),
        "ill-conditioned": ill_conditioned,
        "funnel": lambda: funnel(width=1.0),
    }[target]()
    site = {"skewed": "rate", "funnel": "v"}.get(target, "w")
    careful = {"energy_variance": 1e-5} if name == "MCLMC" else {"target_accept": 0.95} if target == "funnel" else {}
    when_native_pays(monkeypatch, 0)
    method: Any = METHODS[name](num_chains=4, num_warmup=600, num_draws=1000, **careful)
    posterior = fit(made.model, method, *made.data, seed=3, dtype=dtype)
    draws = posterior.density.constrain(posterior.draws())[site].double().numpy()
    check_moments(site, draws, made.mean[site], made.sd[site], accuracy=BIAS.get(name, 0.0))
