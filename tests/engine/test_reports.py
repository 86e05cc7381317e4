"""What is told about how functions and loops ran: the way, the reasons, and the seconds."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from bnnzoo.engine import chunks, compiling, loops
from bnnzoo.engine.cpp.toolchain import NoCompiler
from bnnzoo.engine.loops import Chunk
from bnnzoo.engine.lowered import LoopStep, Lowered
from bnnzoo.engine.reports import EngineLog, EngineReport
from bnnzoo.engine.torch_private import LoweringWarning


def doubling(log: EngineLog, **how: object) -> Chunk:
    return Chunk(
        lambda x, last: x < last, lambda x, last: 2 * x + 1, torch.tensor(3.0), torch.tensor(5.0), log=log, **how
    )  # type: ignore[arg-type]


def test_native_code_and_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "COMPILED", {})
    monkeypatch.setattr(loops, "compiled_before", lambda name: None)
    log, again = EngineLog(), EngineLog()
    doubling(log, key="reported")
    report = log.report()
    assert report.engine == "native" and not report.fell_back
    assert report.tracing > 0 and report.compiling > 0 and report.running == 0
    doubling(again, key="reported")
    assert again.report() == EngineReport("native")  # the code was there: no second was spent on it


def test_no_compiler_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise NoCompiler("no g++, c++ or clang++ on the path")

    monkeypatch.setattr(loops, "compile_in_cpp", refuse)
    log = EngineLog()
    assert doubling(log, compiles="cpp").how == "traced"
    assert log.report().engine == "graph" and log.report().fell_back
    assert log.report().reasons == ("native code: NoCompiler: no g++, c++ or clang++ on the path",)


def test_every_fall_back_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("no such operation\nand more")

    log = EngineLog()
    assert chunks.inner_graph(lambda x: (x.item() * x,), [torch.ones(())], log=log) is None
    assert chunks.inner_graph(lambda x: tuple(torch.linalg.eigh(x)), [torch.eye(2)], log=log) is None
    assert chunks.compiled_or_none(1, refuse, log) is None
    asked, raising, failed = log.report().reasons
    assert asked.startswith("native code: ValueAsked: The value of a tensor that depends on the inputs is asked for")
    assert raising.startswith("native code: a decomposition may raise out of the middle of a loop")
    assert failed == "native code: RuntimeError: no such operation"


def test_functions_called_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    log = EngineLog()
    assert Lowered(torch.sin, log=log).specialize(torch.ones(2)).how == "traced"
    assert log.report().engine == "graph" and log.report().tracing > 0

    def asks(x: Tensor) -> Tensor:
        return x * x.sum().item()

    with pytest.warns(LoweringWarning, match="could not be traced"):
        step = LoopStep(asks, torch.ones(2), log=log)
    assert step.log is log and log.report().engine == "python"
    assert log.report().reasons[0].startswith("graph: ValueAsked: The value of a tensor")
    monkeypatch.setattr(compiling, "inductor", lambda: 1 / 0)
    with pytest.warns(LoweringWarning, match="ZeroDivisionError"):
        Lowered(torch.sin, log=log).specialize(torch.ones(2)).compiled([torch.ones(2)], log)
    assert (
        log.report().engine == "graph"
        and log.report().reasons[1] == "torch's compiler: ZeroDivisionError: division by zero"
    )


def test_many_threads_write_to_one_log() -> None:
    log = EngineLog()

    def write(number: int) -> None:
        log.refused("native code", str(number % 5))
        log.add("running", 0.5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(1000)))
    assert log.report().running == 500.0 and sorted(log.report().reasons) == [f"native code: {i}" for i in range(5)]


def test_reports_are_saved_and_read() -> None:
    report = EngineReport("graph", ("native code: no compiler",), 0.25, 0.0, 1.5)
    assert EngineReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    assert str(report) == "graph because native code: no compiler (tracing 0.2 s, compiling 0.0 s, running 1.5 s)"
