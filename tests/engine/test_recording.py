"""Recorded steps: what is copied, what is kept, and when a step stays as it is.

Kernels of a GPU are stood in for by the function itself, writing into the memory of its first call.
"""

import gc
import weakref
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.engine import choose, recording
from bnnzoo.engine import lowered as module
from bnnzoo.engine.graphs import trace
from bnnzoo.engine.lowered import LoopStep
from bnnzoo.engine.recording import Recording, carried_on, record
from bnnzoo.engine.torch_private import LoweringWarning
from bnnzoo.testing import linear_gaussian


def replayed(function: Callable[..., Sequence[Tensor]], inputs: list[Tensor], num_carried: int = 0):
    outputs = [output.clone() for output in function(*inputs)]

    def replay() -> None:
        for output, new in zip(outputs, carried_on(function(*inputs), inputs[:num_carried]), strict=True):
            output.copy_(new)

    return replay, inputs, outputs


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors count as a GPU's, and calls be recorded without one."""
    monkeypatch.setattr(recording, "are_on_gpu", bool)
    monkeypatch.setattr(module, "are_on_gpu", bool)
    monkeypatch.setattr(recording, "_captured", replayed)


def step(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return a + b, a > b


def recorded_step() -> Recording:
    found = record(step, trace(step, [torch.zeros(2), torch.zeros(2)])[0], [torch.zeros(2), torch.zeros(2)])
    assert isinstance(found, Recording)
    return found


def test_a_replay_computes_at_other_values(on_gpu: None) -> None:
    total, larger = recorded_step()(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 3.0]))
    assert total.tolist() == [3.0, 8.0] and larger.tolist() == [False, True]


def test_results_are_left_alone_by_the_next_call(on_gpu: None) -> None:
    call = recorded_step()
    first = call(torch.ones(2), torch.ones(2))[0]
    call(torch.full((2,), 9.0), torch.ones(2))
    assert first.tolist() == [2.0, 2.0]


def test_only_new_values_are_copied(on_gpu: None) -> None:
    memory = [torch.zeros(2), torch.zeros(2)]
    call, data = Recording(*replayed(step, memory)), torch.ones(2)
    for value in (1.0, 2.0, 3.0):
        assert call(torch.full((2,), value), data)[0].tolist() == [value + 1.0] * 2
    copies = [tensor._version for tensor in memory]
    assert copies == [3, 1]


def test_what_was_written_into_an_argument_counts(on_gpu: None) -> None:
    call, state, data = recorded_step(), torch.zeros(3, 2), torch.ones(2)
    row = state[1]
    assert call(row, data)[0].tolist() == [1.0, 1.0]
    state[1] = 4.0
    assert call(row, data)[0].tolist() == [5.0, 5.0]


def test_what_is_carried_stays_in_its_memory(on_gpu: None) -> None:
    """A result that is an argument is one of before, also where two arguments change places."""

    def turn(a: Tensor, b: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        return b, a + step, a

    memory = [torch.tensor([1.0]), torch.tensor([2.0])]
    inputs = [*memory, torch.tensor([10.0])]
    call = record(turn, trace(turn, [each.clone() for each in inputs])[0], inputs, None, 2)
    assert isinstance(call, Recording) and [each.item() for each in memory] == [1.0, 2.0]
    versions = [each._version for each in memory]
    a, b, before = call(*inputs)
    assert (a, b) == tuple(memory) and (a.item(), b.item(), before.item()) == (2.0, 11.0, 1.0)
    assert all(each._version > version for each, version in zip(memory, versions, strict=True))
    a, b, before = call(a, b, inputs[2])
    assert (a.item(), b.item(), before.item()) == (11.0, 12.0, 2.0)
    a, b, before = call(torch.tensor([5.0]), b, inputs[2])
    assert (a, b) == tuple(memory) and (a.item(), b.item(), before.item()) == (12.0, 15.0, 5.0)


def test_constants_of_what_was_recorded_live_on(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels read them where they were: freed, that memory would be another tensor's."""
    results = [torch.ones(2), torch.zeros(2, dtype=torch.bool)]
    monkeypatch.setattr(recording, "_captured", lambda function, inputs, num_carried: (lambda: None, inputs, results))
    monkeypatch.setattr(recording, "_alike", lambda found, expected: True)
    one = torch.ones(2)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return step(*tensors)

    found = record(function, trace(step, [one, one])[0], [one.clone(), one.clone()])
    recorded = weakref.ref(function)
    del function
    gc.collect()
    assert isinstance(found, Recording) and recorded() is not None


def test_a_reader_sees_what_a_recording_has_written(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays of a GPU do not count as writing: the reader has to be told."""
    memory, ones = torch.zeros(2), torch.ones(2)
    result = torch.zeros(2)

    def unseen() -> None:
        memory.data.numpy()[:] += 1.0

    writer = Recording(unseen, [memory, ones.clone()], [memory], 1)
    reader = Recording(*replayed(step, [result, torch.zeros(2)]))
    for number in (1.0, 2.0):
        (state,) = writer(memory, ones)
        assert state is memory and reader(state, ones)[0].tolist() == [number + 1.0] * 2


def test_on_the_cpu_nothing_is_recorded() -> None:
    assert record(step, trace(step, [torch.zeros(2), torch.zeros(2)])[0], [torch.zeros(2), torch.zeros(2)]) is step


def test_noise_is_not_recorded(on_gpu: None) -> None:
    def noisy(x: Tensor) -> tuple[Tensor]:
        return (x + torch.randn_like(x),)

    assert record(noisy, trace(noisy, [torch.zeros(2)])[0], [torch.zeros(2)]) is noisy


def test_a_step_that_cannot_be_recorded_stays(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object, inputs: object, num_carried: int) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(recording, "_captured", refuse)
    inputs = [torch.zeros(2), torch.zeros(2)]
    with pytest.warns(
        LoweringWarning, match=r"could not be recorded as a CUDA graph, and launches .* \(RuntimeError: opera"
    ):
        assert record(step, trace(step, inputs)[0], inputs) is step


def test_a_recording_that_forgets_is_noticed(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        recording,
        "_captured",
        lambda function, inputs, num_carried: (lambda: None, inputs, [torch.ones(2), torch.ones(2)]),
    )
    inputs = [torch.zeros(2), torch.zeros(2)]
    with pytest.warns(LoweringWarning, match="replayed, it gave other numbers"):
        assert record(step, trace(step, inputs)[0], inputs) is step


def test_a_loop_is_recorded_before_it_is_worth_compiling(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(2)
    loop = LoopStep(step, x, x)
    ways = []
    for _ in range(choose.CALLS_TO_RECORD + 2):
        assert loop(x + 1.0, x)[0].tolist() == [1.0, 1.0]
        ways.append(loop.how)
    assert ways == ["traced"] * choose.CALLS_TO_RECORD + ["recorded"] * 2
    assert (
        LoopStep(step, x, x, at_least=100)(x, x)
        and loop._specialized.stays_for == loop._specialized.worth_compiling_after
    )
    monkeypatch.setattr(
        module, "compile_graph", lambda graph, inputs, log: lambda *tensors: [each + 5.0 for each in graph(*tensors)]
    )
    loop.num_calls = int(loop._specialized.worth_compiling_after)
    assert loop(x, x)[0].tolist() == [5.0, 5.0] and loop.how == "recorded"
    assert loop._specialized.stays_for == float("inf")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What becomes of every step of a loop, each being worth recording."""
    found: list[object] = []
    monkeypatch.setattr(choose, "COMPILE_SECONDS", 1e-9)
    monkeypatch.setattr(module, "record", lambda *args: found.append(record(*args)) or found[-1])
    return found


METHODS = [
    bz.NUTS(num_chains=2, num_warmup=60, num_draws=20),
    bz.MAMS(num_chains=2, num_warmup=60, num_draws=20),
    bz.MCLMC(num_chains=2, num_warmup=60, num_draws=20),
    bz.MeanFieldVI(num_steps=100),
]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_loops_go_the_same_way_through_recordings(
    method: object, made: list[object], request: pytest.FixtureRequest
) -> None:
    target = linear_gaussian()
    plain = bz.fit(target.model, method, *target.data, progress=False, engine="graph")
    made.clear()
    request.getfixturevalue("on_gpu")
    found = bz.fit(target.model, method, *target.data, progress=False, engine="graph")
    assert made and all(isinstance(one, Recording) for one in made)
    assert torch.equal(found.draws(), plain.draws())


QUICK: dict[str, int] = {"num_warmup": 60, "num_draws": 20}
RECORDED = [
    bz.NUTS(num_chains=2, mass_matrix="dense", **QUICK),
    bz.HMC(num_chains=2, **QUICK),
    bz.MAMS(num_chains=2, **QUICK),
    bz.MCLMC(num_chains=2, **QUICK),
    bz.SGHMC(num_chains=2, batch_size=8, **QUICK),
    bz.StochasticMCLMC(num_chains=2, batch_size=8, **QUICK),
    bz.Tempered(bz.NUTS(num_chains=2, **QUICK), num_temperatures=3),
    bz.DeepEnsemble(num_members=2, num_steps=60),
    bz.FlowVI(num_steps=50),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # as short runs may
@pytest.mark.parametrize("method", RECORDED, ids=lambda method: type(method).__name__)
def test_what_is_recorded_and_not_compiled_gives_the_same_numbers(
    method: object, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    target, found = linear_gaussian(), []
    plain = bz.fit(target.model, method, *target.data, progress=False, engine="graph")
    monkeypatch.setattr(module, "record", lambda *args: found.append(record(*args)) or found[-1])
    request.getfixturevalue("on_gpu")
    draws = bz.fit(target.model, method, *target.data, progress=False, engine="graph").draws()
    assert found and all(isinstance(one, Recording) for one in found)
    assert torch.equal(draws, plain.draws())


@pytest.mark.gpu
def test_kernels_of_a_gpu_are_recorded() -> None:
    def wide(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return (x @ w).tanh(), (x @ w).square().sum()

    x, w = torch.randn(64, 8, device="cuda"), torch.randn(8, 32, device="cuda")
    loop = LoopStep(wide, x, w, at_least=10**9)
    for scale in (1.0, 2.0, 3.0):
        for found, expected in zip(loop(scale * x, w), wide(scale * x, w), strict=True):
            torch.testing.assert_close(found, expected)
    assert loop._specialized.how == "recorded"


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_loops_are_recorded_on_a_gpu(method: object, made: list[object]) -> None:
    target = linear_gaussian()
    bz.fit(target.model, method, *target.data, progress=False, device="cuda")
    assert made and all(isinstance(one, Recording) for one in made)
