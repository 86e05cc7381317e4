"""Warnings of runs that are slow because the machine has no compiler, one for each fit."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from bnnzoo.engine.cpp.toolchain import NoCompiler
from bnnzoo.engine.torch_private import LoweringWarning

__all__ = ["lacks_compiler", "warn_without_compiler", "warned_once"]

_warned: ContextVar[list[str] | None] = ContextVar("_warned", default=None)
"""What was warned of within :func:`warned_once`; None outside of it."""


@contextmanager
def warned_once() -> Iterator[None]:
    """Let :func:`warn_without_compiler` warn once within the body, and the bodies in it, of however many functions and loops."""
    token = _warned.set([] if (before := _warned.get()) is None else before)
    try:
        yield
    finally:
        _warned.reset(token)


def lacks_compiler(reasons: Sequence[str]) -> bool:
    """Tell whether a run is slow for want of a compiler, from the reasons in its :class:`bnnzoo.engine.reports.EngineReport`."""
    return any(NoCompiler.__name__ in reason for reason in reasons)


def warn_without_compiler(what: str, reasons: Sequence[str], stacklevel: int = 2) -> None:
    """Warn that something runs as traced graphs for want of a compiler.

    Parameters
    ----------
    what : str
        What runs, with its verb.
    reasons : sequence of str
        As :class:`bnnzoo.engine.reports.EngineReport` has them.
    stacklevel : int
        As :func:`warnings.warn` takes it.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as found, warned_once():
    ...     warnings.simplefilter("always")
    ...     for _ in range(2):
    ...         warn_without_compiler("Training runs", ["native code: NoCompiler: no g++ on the path"])
    >>> [str(each.message) for each in found]
    ['Training runs as traced graphs, several times slower: native code: NoCompiler: no g++ on the path.']
    """
    warned = _warned.get()
    if warned:
        return
    message = f"{what} as traced graphs, several times slower: {'; '.join(reasons)}."
    if warned is not None:
        warned.append(message)
    warnings.warn(message, LoweringWarning, stacklevel=stacklevel + 1)
