"""Training in native chunks: the steps of the batch, whatever is asked of it, and back to the batch where it must."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

import bnnzoo as bz
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine import choose, runner
from bnnzoo.engine.choose import Engine
from bnnzoo.engine.chunks import Inner, inner_graph
from bnnzoo.engine.cpp import toolchain
from bnnzoo.engine.fleet import NativeCopies
from bnnzoo.engine.loops import Chunk
from bnnzoo.engine.reports import EngineLog
from bnnzoo.engine.torch_private import LoweringWarning
from bnnzoo.inference.optimise import training_engines, training_program
from bnnzoo.inference.optimise.batches import Bootstrap, MemberBatches, MiniBatches, StepBatch
from bnnzoo.inference.optimise.objectives import MemberObjective, ObjectiveInputs
from bnnzoo.inference.optimise.observers import KeptIterates, PlateauStopping, all_of
from bnnzoo.inference.optimise.optimisers import SGD, Adam
from bnnzoo.inference.optimise.schedules import Constant
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.optimise.training_engines import NativeTraining, native_training
from bnnzoo.inference.optimise.training_program import StepInputs, member_gradient
from bnnzoo.inference.optimise.training_run import Run, StepArguments, Trained
from tests.helpers.training import START, TARGET
from tests.helpers.training import trained as trained_members

NUM_STEPS = 40
trained = partial(trained_members, num_steps=NUM_STEPS, observe=lambda *_: None)

type Natively = Callable[..., tuple[Trained, NativeTraining]]


@pytest.fixture
def natively(monkeypatch: pytest.MonkeyPatch) -> Natively:
    """Train in chunks however short the run."""

    def run(*args: Any, compiles: bool = True, num_threads: int = 2, budget: int = 7, **settings) -> Any:
        made: list[NativeTraining] = []
        whole = training_engines.native_copies

        def copies(*args: Any, **given: Any) -> NativeCopies | None:
            return whole(*args, **{**given, "num_threads": num_threads, "compiles": compiles and "cpp"})

        def make(run: Run, first: StepArguments, same_rows: bool, log: EngineLog, **_: bool) -> NativeTraining:
            found = native_training(run, first, same_rows, log)
            assert found is not None, log.report()
            assert found.copies.how == ("compiled" if compiles else "traced")
            found.budget = min(budget, found.inputs.max_steps)
            made.append(found)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(train.__module__ + ".NATIVE_PAYS_FROM", 1)
            patch.setattr(train.__module__ + ".native_training", make)
            patch.setattr(training_engines, "native_copies", copies)
            if not compiles:
                patch.setattr(NativeCopies, "is_native", lambda _: True)
            found = trained(*args, **settings)
        assert len(made) == 1
        return found, made[0]

    return run


def assert_same(found: Trained, wanted: Trained, tolerance: float = 1e-10) -> None:
    assert found.complete == wanted.complete
    assert torch.equal(found.trace.isnan(), wanted.trace.isnan())
    ours, theirs = ([each.params, *each.state, each.trace.nan_to_num(), each.last_good] for each in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_native_steps_are_those_of_the_batch(natively: Natively) -> None:
    assert_same(natively()[0], trained())


@pytest.mark.slow
def test_native_steps_are_those_of_the_batch_in_single_precision(natively: Natively) -> None:
    settings = {"start": START.float(), "batches": MemberBatches(8), "observe": None}
    found, _ = natively(**settings)
    assert found.params.dtype == torch.float32
    assert_same(found, trained(**settings), tolerance=1e-4)


def test_rows_of_steps_are_written_in_place(natively: Natively) -> None:
    """And not into a copy of all the iterates of a chunk, which takes longer than a step."""
    graph: Any = natively(compiles=False)[1].copies.chunk._function
    targets = [node.target for each in graph.modules() if isinstance(each, GraphModule) for node in each.graph.nodes]
    assert targets.count(torch.ops.aten.index_put_.default) == 2  # values and iterates
    assert torch.ops.aten.index_put.default not in targets


class Stream:
    """Batches that come from elsewhere, of rows one behind the other."""

    def stream(self, density: LogDensity, streams: MemberStreams) -> Iterator[StepBatch]:
        for first in itertools.cycle(range(0, 40, 10)):
            yield StepBatch(tuple(part[first : first + 10] for part in TARGET.data), (None, None))


@pytest.mark.slow
@pytest.mark.parametrize(
    "batches",
    [MiniBatches(8), MemberBatches(8), Bootstrap(), Stream()],
    ids=["shared", "own", "weights", "from elsewhere"],
)
def test_rows_are_those_of_the_batch(batches, natively: Natively) -> None:
    found, _ = natively(optimiser=SGD(1e-3), batches=batches, num_steps=20)
    assert_same(found, trained(optimiser=SGD(1e-3), batches=batches, num_steps=20))


def test_rows_of_each_member_with_weights_are_those_of_the_batch(natively: Natively) -> None:
    batches = Bootstrap(MemberBatches(8))
    found, _ = natively(optimiser=SGD(1e-3), batches=batches, num_steps=20, compiles=False)
    assert_same(found, trained(optimiser=SGD(1e-3), batches=batches, num_steps=20))


def spread(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
    """Return a parabola whose top is moved by constants, noise and a number of the step."""
    (noise,), (anchor,), (weight,) = inputs.noise, inputs.constants, inputs.scalars
    return -0.5 * weight * ((params - anchor - noise) ** 2).sum()


def everything() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(5)
    return {
        "objective": MemberObjective(spread),
        "optimiser": Adam(0.05, clip=2.0),
        "constants": (torch.arange(9.0).view(3, 3),),
        "scalars": torch.linspace(0.1, 1.0, NUM_STEPS)[:, None],
        "noise": lambda _: (torch.randn(3, 3, generator=generator),),
    }


@pytest.mark.slow
def test_constants_noise_and_numbers_are_those_of_the_batch(natively: Natively) -> None:
    found, _ = natively(**everything(), compiles=False)
    assert_same(found, trained(**everything()))


def test_neither_threads_nor_lengths_of_chunks_change_anything(
    natively: Natively, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "THREADS_PAY_FROM", 0.0)
    one, _ = natively(num_threads=1, budget=100)
    two, members = natively(num_threads=3, budget=1)
    assert members.copies.num_threads == 3
    assert torch.equal(one.params, two.params) and torch.equal(one.trace, two.trace)


def test_observers_see_what_they_see_of_the_batch(natively: Natively) -> None:
    def watched(kept: KeptIterates, seen: list[tuple[int, Tensor]]) -> dict[str, Any]:
        return {"observe": all_of(kept, lambda step, params, value: seen.append((step, value)))}

    kept, seen, all_kept, all_seen = KeptIterates(), [], KeptIterates(), []
    assert_same(natively(**watched(kept, seen))[0], trained(**watched(all_kept, all_seen)))
    assert [step for step, _ in seen] == [step for step, _ in all_seen] == list(range(1, NUM_STEPS + 1))
    torch.testing.assert_close([value for _, value in seen], [value for _, value in all_seen], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kept.iterates, all_kept.iterates, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "last", [pytest.param(1, marks=pytest.mark.slow), pytest.param(16, marks=pytest.mark.slow), 35]
)
def test_an_observer_ends_the_run_in_the_middle_of_a_chunk(last: int, natively: Natively) -> None:
    found, _ = natively(observe=lambda step, *_: step == last, budget=13)
    assert found.num_steps == last
    assert_same(found, trained(observe=lambda step, *_: step == last))


@pytest.mark.slow
def test_it_stops_early_where_the_batch_does(natively: Natively) -> None:
    def stopping() -> dict[str, Any]:
        return {"observe": PlateauStopping(0.5, window=3, num_steps=NUM_STEPS)}

    found, wanted = natively(**stopping())[0], trained(**stopping())
    assert wanted.num_steps < NUM_STEPS
    assert_same(found, wanted)


def test_interrupted_by_what_observes_it_keeps_what_was_seen(natively: Natively) -> None:
    def interrupting(step: int, params: Tensor, value: Tensor) -> None:
        if step == 18:
            raise KeyboardInterrupt

    found, _ = natively(observe=interrupting)
    assert found.num_steps == 17
    assert_same(found, interrupted_after(17))


def test_interrupted_in_the_middle_of_a_chunk_it_goes_back_to_its_beginning(
    natively: Natively, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, run, advance = [], Chunk.__call__, NativeTraining.advance

    def interrupted(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 8:  # the second member of the third chunk
            raise KeyboardInterrupt
        run(*given)

    def advanced(*given: Any) -> Tensor:
        monkeypatch.setattr(Chunk, "__call__", interrupted)  # native code was tried before this
        return advance(*given)

    monkeypatch.setattr(NativeTraining, "advance", advanced)
    found, _ = natively(num_threads=1, budget=5)
    assert not found.complete
    assert 0 < found.num_steps < NUM_STEPS
    assert_same(found, interrupted_after(found.num_steps))


INTERRUPTED = """
import os, signal, sys, threading, time
import bnnzoo as bz
from bnnzoo.inference.optimise.training_engines import NativeTraining
from bnnzoo.testing import linear_gaussian
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell starts in the background
moving, advance, sent = threading.Event(), NativeTraining.advance, []

def noted(*given):
    moving.set()
    return advance(*given)

def interrupt():
    moving.wait()
    time.sleep(0.5)
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)

NativeTraining.advance = noted
threading.Thread(target=interrupt, daemon=True).start()
target = linear_gaussian()
posterior = bz.fit(target.model, eval(sys.argv[1]), *target.data, progress=False)
print(time.perf_counter() - sent[0], posterior.info.complete, bool(posterior.draws().isfinite().all()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["MAP(num_members=4", "MeanFieldVI(num_particles=1"])
def test_ctrl_c_ends_native_training_at_once_with_what_it_found(method: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED, f"bz.{method}, num_steps=5_000_000)"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.split()
    assert printed[1:] == ["False", "True"]
    assert float(printed[0]) < 2.0  # half a second on idle cores


def interrupted_after(num_steps: int) -> Trained:
    return replace(trained(observe=lambda step, *_: step == num_steps), complete=False)


def interrupt() -> bool:
    raise KeyboardInterrupt


def test_interrupted_before_the_first_step_there_is_nothing(
    natively: Natively, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeCopies, "advance", lambda _: interrupt())
    with pytest.raises(KeyboardInterrupt):
        natively()


def test_members_that_are_stuck_go_back_as_they_do_in_the_batch(natively: Natively) -> None:
    def objective(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        return -((params - 1.0) ** 2).sum() + 0.0 * (1.5 - params[0]).sqrt()

    settings = {
        "objective": MemberObjective(objective),
        "optimiser": SGD(0.9, momentum=0.0),
        "schedule": Constant(),
        "start": torch.tensor([[-1.0], [0.9]], dtype=torch.float64),
        "num_steps": 50,
    }
    found, wanted = natively(**settings, compiles=False)[0], trained(**settings)
    assert wanted.num_rejected >= 15
    assert_same(found, wanted)


@pytest.mark.slow
def test_progress_is_shown_as_by_the_batch(natively: Natively) -> None:
    class Shown:
        def __init__(self) -> None:
            self.steps: list[int] = []

        def start(self, description: str, total: int) -> None: ...
        def stop(self) -> None: ...
        def update(self, step: int, **fields: float) -> None:
            self.steps.append(step)

    ours, theirs = Shown(), Shown()
    natively(context=FitContext(3, progress=ours))
    trained(context=FitContext(3, progress=theirs))
    assert ours.steps == theirs.steps == list(range(1, NUM_STEPS + 1))


@pytest.mark.parametrize(
    ("num_steps", "objective"),
    [(30, MemberObjective(lambda params, inputs: -(params**2).sum())), (10**9, None)],
    ids=["short", "coupled"],
)
def test_short_runs_and_coupled_members_stay_in_the_batch(
    num_steps, objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Coupled:
        """Members whose gradients would depend on each other."""

        alone = MemberObjective(lambda params, inputs: -(params**2).sum())
        value_and_grad, looped_value_and_grad = alone.value_and_grad, alone.looped_value_and_grad

    coupled = Coupled()
    monkeypatch.setattr(training_engines, "NativeTraining", None)
    ended = trained(objective or coupled, num_steps=min(num_steps, 30))
    assert ended.num_steps == 30
    run, first = a_run(objective or coupled)
    assert (member_gradient(run, first, True, StepInputs(first, True, 3, 3)) is None) == (objective is None)


def a_run(objective: MemberObjective) -> tuple[Run, StepArguments]:
    table = torch.ones(4, 3, dtype=torch.float64)
    run = Run(objective, Adam(), table, 3, (), START, None, FitContext().progress, "loss")
    return run, StepArguments(StepBatch((), ()), ())


def test_large_steps_stay_in_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.eye(3, dtype=torch.float64)
    run, first = a_run(MemberObjective(lambda params, inputs: -(matrix @ params[:, None] ** 2).sum()))
    compiled = []
    monkeypatch.setattr(runner, "compiled_or_none", lambda inner, make, log: compiled.append(inner))
    native_training(run, first, True, EngineLog())
    assert len(compiled) == 1
    monkeypatch.setattr(training_engines, "MAX_NATIVE_FLOPS", 1)
    native_training(run, first, True, EngineLog())
    assert len(compiled) == 1
    native_training(run, first, True, EngineLog(), is_asked=True)
    assert len(compiled) == 2


def test_native_code_that_is_asked_for_trains_large_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_engines, "MAX_NATIVE_FLOPS", -1)
    for engine, expected in (("native", "native"), ("auto", "graph")):
        found = bz.fit(TARGET.model, bz.MAP(num_steps=450, polish_steps=0), *TARGET.data, engine=engine, progress=False)
        assert found.info.engine.engine == expected


def test_what_cannot_be_written_in_native_code_stays_in_the_batch() -> None:
    def objective(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        return -params.sort().values[1:].square().sum()

    run, first = a_run(MemberObjective(objective))
    log = EngineLog()
    assert native_training(run, first, True, log) is None
    assert any("sort" in reason for reason in log.report().reasons), log.report().reasons


def test_training_without_a_compiler_says_so_and_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It took several times as long, in silence."""
    monkeypatch.setenv("CXX", "/bin/false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    toolchain.compiler.cache_clear()
    method = bz.MAP(num_steps=450, polish_steps=0)
    data = [each[3:] for each in TARGET.data]  # of a size that no other test has compiled
    try:
        with pytest.warns(
            LoweringWarning,
            match=r"^Training runs as traced graphs, several times slower: native code: NoCompiler: /bin/false",
        ):
            found = bz.fit(TARGET.model, method, *data, progress=False)
    finally:
        toolchain.compiler.cache_clear()
    engine = found.info.engine
    assert engine.engine == "graph" and engine.fell_back and engine.reasons[0].startswith("native code: NoCompiler")


@pytest.mark.slow
def test_a_chunk_fits_into_memory_and_lets_an_interrupt_through(
    natively: Natively, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_program, "MAX_ENTRIES", 25)
    found, members = natively(compiles=False, num_steps=6)
    assert members.inputs.max_steps == 25 // (3 + 3)
    assert_same(found, trained(num_steps=6))
    began = time.perf_counter()
    members.advance(torch.ones(1, 3, dtype=torch.float64), [StepArguments(StepBatch((), ()), ())])
    assert time.perf_counter() - began < 0.5


def test_memory_of_what_steps_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_program, "MAX_STEPS", 4)
    own, shared = torch.arange(6.0).view(2, 3), torch.tensor(7.0)
    given = [StepArguments(StepBatch((shared + i, own + i), (None, 0)), (own * i,)) for i in range(2)]
    inputs = StepInputs(given[0], same_rows=False, num_members=2, num_others=1)
    assert inputs.shapes == ((3,), (), (3,))
    inputs.write(given)
    noise, number, rows = inputs.of_member(1)
    assert noise[:2].tolist() == [[0.0, 0.0, 0.0], [3.0, 4.0, 5.0]]
    assert number[:2, 0].tolist() == [7.0, 8.0]
    assert rows[:2].tolist() == [[3.0, 4.0, 5.0], [4.0, 5.0, 6.0]]
    assert [
        tuple(each.shape) for each in StepInputs(given[0], same_rows=True, num_members=2, num_others=1).of_member(0)
    ] == [(4, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        bz.MeanFieldVI(num_steps=300, num_particles=1, num_restarts=2),
        bz.MAP(num_steps=300, num_members=2, batch_size=10),
        bz.DeepEnsemble(num_steps=300, num_members=2, anchored=True),
        bz.SWAG(num_steps=300),
    ],
    ids=lambda method: type(method).__name__,
)
def test_methods_find_what_they_find_in_the_batch(method, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(engine: Engine) -> Tensor:
        return bz.fit(TARGET.model, method, *TARGET.data, progress=False, engine=engine).draws()

    made: list[NativeTraining] = []
    whole = NativeTraining.__init__

    def counted(members: NativeTraining, *args: Any, **settings: Any) -> None:
        whole(members, *args, **settings)
        made.append(members)

    wanted = found("graph")
    monkeypatch.setattr(NativeTraining, "__init__", counted)
    torch.testing.assert_close(found("native"), wanted, rtol=1e-7, atol=1e-7)
    assert made and all(each.copies.how == "compiled" for each in made)


def test_a_fit_of_default_length_runs_in_native_code_and_a_trial_does_not() -> None:
    """A second fit takes a fraction of a batch's time, and a first one, compiled, no more."""
    engines = [bz.fit(TARGET.model, bz.MAP(num_steps=n), *TARGET.data).info.engine for n in (1000, 100)]
    assert [each.engine for each in engines] == ["native", "graph"]


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_searches_of_one_fit_share_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second search, of other length, of variational inference is traced no more."""
    gradients: list[Inner | None] = []

    def traced(*args: Any, **settings: Any) -> Inner | None:
        gradients.append(inner_graph(*args, **settings))
        return gradients[-1]

    monkeypatch.setattr(runner, "inner_graph", traced)
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def separated(x: Tensor, y: Tensor) -> None:
        slopes = pyro.sample("slopes", dist.Normal(torch.zeros(6), 3.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ slopes), obs=y)

    posterior = bz.fit(separated, bz.MeanFieldVI(), x, (x.sum(1) > 0).double(), progress=False)
    assert posterior.info.config["num_steps"] > 500 and len(gradients) == 1


def test_progress_shows_the_objective_of_its_step(natively: Natively) -> None:
    shown: dict[int, float] = {}

    class Recorder:
        def start(self, description: str, total: int) -> None: ...
        def stop(self) -> None: ...
        def update(self, step: int, **fields: float) -> None:
            shown[step] = fields["loss"]

    found, _ = natively(context=FitContext(3, progress=Recorder()), observe=None)
    assert len(shown) > 3
    wanted = found.trace.mean(0)
    assert [shown[step] for step in shown] == pytest.approx([float(wanted[step - 1]) for step in shown])
