"""Record of how a function or a loop ran: the engine and the reason for it, and the time of tracing and compiling."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

__all__ = [
    "Engine",
    "EngineLog",
    "EngineReport",
    "Stopwatch",
    "first_line",
    "joined_reports",
    "preparing",
    "ran_as",
    "watched",
]

type Engine = Literal["python", "graph", "cuda graph", "compiled graph", "native"]
type Phase = Literal["tracing", "compiling", "running"]


@dataclass(frozen=True)
class EngineReport:
    """How something ran.

    Attributes
    ----------
    engine : {"python", "graph", "cuda graph", "compiled graph", "native"}
        As Python functions; as a graph of torch's operations called from Python, recorded, or compiled by torch; or as loops in
        native code.
    reasons : tuple of str
        Why it did not run in a faster way, in the order in which these were tried; empty if there is nothing to say.
    tracing, compiling, running : float
        Seconds spent writing down operations, compiling them, and running. Tracing and compiling count once where several
        loops share their code, and not at all where code of an earlier process is used.
    """

    engine: Engine
    reasons: tuple[str, ...] = ()
    tracing: float = 0.0
    compiling: float = 0.0
    running: float = 0.0

    @property
    def fell_back(self) -> bool:
        """Whether a faster way was tried and failed."""
        return bool(self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        seconds = {name: round(getattr(self, name), 3) for name in ("tracing", "compiling", "running")}
        return {"engine": self.engine, "reasons": list(self.reasons), **seconds}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "EngineReport":
        """Return what :meth:`to_json` wrote down."""
        return cls(**{**saved, "reasons": tuple(saved["reasons"])})

    def __str__(self) -> str:
        """Return it as a sentence."""
        seconds = [f"{name} {getattr(self, name):.1f} s" for name in ("tracing", "compiling", "running")]
        why = f" because {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.engine}{why} ({', '.join(seconds)})"


class EngineLog:
    """Collects how the loops and functions of one run are lowered; threads may write to it side by side.

    Examples
    --------
    >>> log = EngineLog()
    >>> log.refused("native", "no g++, c++ or clang++ on the path")
    >>> log.chose("graph")
    >>> str(log.report())
    'graph because native: no g++, c++ or clang++ on the path (tracing 0.0 s, compiling 0.0 s, running 0.0 s)'
    """

    def __init__(self) -> None:
        self._engine: Engine = "python"
        self._reasons: dict[str, None] = {}
        self._seconds: dict[Phase, float] = {"tracing": 0.0, "compiling": 0.0, "running": 0.0}
        self._lock = Lock()

    def chose(self, engine: Engine) -> None:
        """Note how the run goes on."""
        with self._lock:
            self._engine = engine

    def refused(self, way: str, reason: str | BaseException) -> None:
        """Note that a way to run was tried and given up, and why; the same reason counts once."""
        with self._lock:
            self._reasons[f"{way}: {reason if isinstance(reason, str) else first_line(reason)}"] = None

    @contextmanager
    def timed(self, phase: Phase) -> Iterator[None]:
        """Add the time that the body takes to a phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(phase, time.perf_counter() - began)

    def add(self, phase: Phase, seconds: float) -> None:
        """Add seconds to a phase."""
        with self._lock:
            self._seconds[phase] += seconds

    def include(self, report: EngineReport, *, counts_seconds: bool = True) -> None:
        """Add the reasons of a part of the run, and its seconds unless these were spent for another run."""
        with self._lock:
            self._reasons.update(dict.fromkeys(report.reasons))
            for phase in self._seconds if counts_seconds else ():
                self._seconds[phase] += getattr(report, phase)

    def report(self) -> EngineReport:
        """Return what was noted so far."""
        with self._lock:
            return EngineReport(self._engine, tuple(self._reasons), **self._seconds)


class Stopwatch:
    """Adds up the seconds of tracing and compiling, and notes how what was prepared runs, and why not otherwise."""

    def __init__(self) -> None:
        self.tracing = self.compiling = 0.0
        self.engine: Engine | None = None
        self.reasons: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Of both."""
        return self.tracing + self.compiling

    def report(self, seconds: float) -> EngineReport | None:
        """Return how something ran for so many seconds in all; None if nobody said."""
        if self.engine is None:
            return None
        return EngineReport(self.engine, self.reasons, self.tracing, self.compiling, max(seconds - self.seconds, 0.0))


_watch: ContextVar[Stopwatch | None] = ContextVar("_watch", default=None)


@contextmanager
def watched() -> Iterator[Stopwatch]:
    """Yield a stopwatch that runs while anything within the body traces or compiles, on this thread.

    Examples
    --------
    >>> with watched() as watch:
    ...     with preparing("compiling"), preparing("tracing"):  # one within another counts once
    ...         time.sleep(0.01)
    >>> 0.01 <= watch.compiling < 0.02, watch.tracing
    (True, 0.0)
    """
    token = _watch.set(watch := Stopwatch())
    try:
        yield watch
    finally:
        _watch.reset(token)


@contextmanager
def preparing(phase: Literal["tracing", "compiling"]) -> Iterator[None]:
    """Let the stopwatch run, if there is one: the body traces or compiles."""
    watch = _watch.get()
    if watch is None:
        yield
        return
    token, began = _watch.set(None), time.perf_counter()
    try:
        yield
    finally:
        setattr(watch, phase, getattr(watch, phase) + time.perf_counter() - began)
        _watch.reset(token)


def ran_as(engine: Engine, reasons: tuple[str, ...] = ()) -> None:
    """Note for the stopwatch, if there is one, how the loop runs that was prepared last, and why not otherwise."""
    if (watch := _watch.get()) is not None:
        watch.engine, watch.reasons = engine, tuple(dict.fromkeys((*watch.reasons, *reasons)))


def joined_reports(reports: Sequence[EngineReport]) -> EngineReport:
    """Return the report of a run from those of its parts: the engine of the first, all reasons, and the sums of the seconds."""
    log = EngineLog()
    for report in reports:
        log.include(report)
    log.chose(reports[0].engine)
    return log.report()


def first_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of what it says."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
