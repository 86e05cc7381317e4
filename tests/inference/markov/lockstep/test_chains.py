"""Chains in lockstep in native code: the draws of the batched loop but for rounding, however their work is spread."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.engine import cores
from bnnzoo.engine import loops as lowered_loops
from bnnzoo.inference import MAMS, MCLMC, ChEESHMC, fit
from bnnzoo.inference.markov.lockstep import chains as native_chains
from bnnzoo.inference.markov.lockstep.chains import NativeMotion
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical, Newtonian
from bnnzoo.inference.markov.lockstep.langevin import LangevinLoop, LangevinSampler, LangevinSettings
from bnnzoo.inference.markov.lockstep.loop import LockstepLoop, LockstepSampler, MicrocanonicalLoop
from bnnzoo.inference.markov.lockstep.motions import Langevin, Motion, Trajectories
from bnnzoo.inference.markov.lockstep.synchronous import SynchronousLoop
from bnnzoo.inference.markov.settings import LockstepSettings
from bnnzoo.inference.markov.trajectory_length import jump_of_spread, squared_jump
from bnnzoo.testing import funnel, ill_conditioned, linear_gaussian, skewed
from bnnzoo.testing.monte_carlo import check_moments
from tests.helpers.executors import InProcess
from tests.helpers.native import GRADIENT, TARGET, density, when_native_pays
from tests.helpers.samplers import BIAS

MOTIONS = {"ChEESHMC": Trajectories(Newtonian()), "MAMS": Trajectories(Microcanonical()), "MCLMC": Langevin()}
NAMES = ["MAMS", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ChEESHMC", "MCLMC"))]
BUDGET: dict[str, Any] = {"num_warmup": 6, "num_draws": 7, "step_size": 0.3}
TOTAL = 13


def moved(name: str, num_chains: int = 3, **how: Any) -> NativeMotion:
    return NativeMotion(MOTIONS[name], GRADIENT, density().init(num_chains, 0), **how)


def loop_of(name: str, native: NativeMotion | None) -> SynchronousLoop[Any]:
    theta = density().init(3, 0)
    if name == "MCLMC":
        return LangevinLoop(
            density(), LangevinSettings(**BUDGET | {"step_size": 0.01}, steps_per_draw=4), theta, 5, 0, native
        )
    settings = LockstepSettings(**BUDGET, trajectory_length=1.5)
    if name == "MAMS":
        return MicrocanonicalLoop(Microcanonical(), squared_jump, density(), settings, theta, 5, 0, native)
    return LockstepLoop(Newtonian(), jump_of_spread, density(), settings, theta, 5, 0, native)


def finished(loop: SynchronousLoop[Any], budget: int | None = None) -> SynchronousLoop[Any]:
    while int(loop.counts.min()) < TOTAL:
        if loop.native is not None:
            loop.native.budget = budget or loop.native.budget
        loop.advance()
    return loop


def check_same(one: SynchronousLoop[Any], other: SynchronousLoop[Any]) -> None:
    assert torch.equal(one.draws, other.draws) and torch.equal(one.stats, other.stats)
    assert one.num_gradients == other.num_gradients and one.num_rejected == other.num_rejected


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_those_of_one_batch_but_for_rounding(name: str) -> None:
    native, batched = finished(loop_of(name, moved(name))), finished(loop_of(name, None))
    assert native.native is not None and native.native.stretch.how == "compiled"
    assert native.kind == f"native {batched.kind}"
    torch.testing.assert_close(native.draws, batched.draws, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(native.stats, batched.stats, rtol=1e-6, atol=1e-6)
    assert native.num_gradients == batched.num_gradients and native.num_rejected == batched.num_rejected
    assert native.streams.num_rows == batched.streams.num_rows
    assert torch.equal(native.streams.num_normals, batched.streams.num_normals)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOTIONS)
def test_graphs_draw_what_native_code_draws(name: str) -> None:
    native, graphs = finished(loop_of(name, moved(name))), finished(loop_of(name, moved(name, compiles=False)))
    assert graphs.native is not None and graphs.native.stretch.how == "traced"
    torch.testing.assert_close(native.draws, graphs.draws, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_do_not_matter(name: str, num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "THREADS_PAY_FROM", 0.0)
    one, many = (finished(loop_of(name, moved(name, num_threads=number))) for number in (1, num_threads))
    assert many.native is not None and many.native.num_threads == num_threads
    check_same(one, many)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_of_stretches_do_not_matter(name: str) -> None:
    check_same(finished(loop_of(name, moved(name)), budget=1), finished(loop_of(name, moved(name))))


def test_full_buffers_do_not_matter() -> None:
    native = moved("MAMS")
    native.max_draws = 2
    check_same(finished(loop_of("MAMS", native)), finished(loop_of("MAMS", moved("MAMS"))))


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_goes_on_with_the_very_next_draw(name: str) -> None:
    whole, broken_off, other = (
        finished(loop_of(name, moved(name))),
        loop_of(name, moved(name)),
        loop_of(name, moved(name)),
    )
    while int(broken_off.counts.min()) < 9:
        assert broken_off.native is not None
        broken_off.native.budget = 1
        broken_off.advance()
    other.restore(broken_off.snapshot())
    other.draws[:, :3], other.stats[:, :3] = broken_off.draws[:, :3], broken_off.stats[:, :3]
    check_same(finished(other), whole)


def begun(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> LockstepLoop:
    """Start the chains of a fit that is expected to be long enough for native code."""
    when_native_pays(monkeypatch, 0)
    sampler = LockstepSampler(Microcanonical(), squared_jump, LockstepSettings(**BUDGET, **settings))
    return sampler.begin(density(), density().init(2, 0), 0, 0)


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no such operation")


@pytest.mark.parametrize(
    ("place", "name", "failing"),
    [
        (lowered_loops, "_traced", refuse),
        (lowered_loops, "compile_loops", lambda *args: None),
        (lowered_loops, "compile_loops", lambda *args: refuse),
        (native_chains, "gradient_of", lambda density: None),
        (native_chains, "NativeMotion", refuse),
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
    assert begun(monkeypatch).native is None


def test_many_chains_and_short_runs_stay_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun(monkeypatch, num_chains=LockstepSettings.max_native_chains + 1).native is None
    monkeypatch.undo()
    sampler = LangevinSampler(LangevinSettings(**BUDGET))
    assert sampler.begin(density(), density().init(2, 0), 0, 0).native is None


def test_arithmetic_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        finished(loop_of("MAMS", moved("MAMS")))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_groups_on_an_executor_draw_what_they_draw_here(monkeypatch: pytest.MonkeyPatch) -> None:
    when_native_pays(monkeypatch, 0)
    method = MAMS(num_chains=4, num_groups=2, num_warmup=20, num_draws=10, max_steps=20)
    here, there = (fit(TARGET.model, method, *TARGET.data, executor=e) for e in (None, InProcess()))
    assert torch.equal(here.draws(), there.draws())


def test_an_interrupt_keeps_the_draws_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    when_native_pays(monkeypatch, 0)
    monkeypatch.setattr(native_chains, "MAX_ROWS", 1)  # one draw a stretch
    method = MAMS(num_chains=2, num_warmup=20, num_draws=10, max_steps=20)
    whole: Any = fit(TARGET.model, method, *TARGET.data)
    draw, calls = NativeMotion.draw, []

    def interrupted(native: NativeMotion, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return draw(native, *args)

    monkeypatch.setattr(NativeMotion, "draw", interrupted)
    part: Any = fit(TARGET.model, method, *TARGET.data)
    assert not part.info.complete
    assert torch.equal(part.draws(), whole.draws()[:, :4])


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


def test_motions_say_what_random_numbers_they_use() -> None:
    assert all(isinstance(motion, Motion) for motion in MOTIONS.values())
    assert MOTIONS["MCLMC"].noise_per_step and not MOTIONS["MAMS"].noise_per_step
