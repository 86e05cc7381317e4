"""Shared parts of native loops: tracing the body, fallback."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine.compiling import for_compiling
from bnnzoo.engine.decisive import kind_of
from bnnzoo.engine.failures import may_raise
from bnnzoo.engine.flops import flops_of
from bnnzoo.engine.graphs import lift_constants, trace_deciding
from bnnzoo.engine.reports import EngineLog
from bnnzoo.engine.torch_private import LoweringWarning

__all__ = ["NATIVE", "Inner", "compiled_or_none", "inner_graph", "kinds_of"]

NATIVE = "native code"


@dataclass(frozen=True, eq=False)
class Inner:
    """A function inside a loop: ``graph(*constants, *inputs)``.

    Attributes
    ----------
    graph : GraphModule
    constants : sequence of Tensor
    flops : int
        Multiplications and additions of its matrix products and convolutions, if they were to be counted.
    """

    graph: GraphModule
    constants: Sequence[Tensor]
    flops: int

    @cached_property
    def words(self) -> str:
        """Words that two graphs share if they compute the same: operations, in a fraction of the time of their code."""
        parts = (module.graph.nodes for module in self.graph.modules() if isinstance(module, GraphModule))
        return "\n".join(
            f"{node} {node.op} {node.target} {node.args} {node.kwargs}" for nodes in parts for node in nodes
        )


def inner_graph(
    function: Callable[..., tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    *,
    counts_flops: bool = False,
    log: EngineLog | None = None,
) -> Inner | None:
    """Return a pure function of tensors as a graph to stand in a loop, or None where it cannot be traced, or may raise.

    ``log`` takes down the reason.
    """
    log = log or EngineLog()
    try:
        with log.timed("tracing"):
            graph, _ = trace_deciding(function, inputs)
        if may_raise(graph):
            log.refused(NATIVE, "a decomposition may raise out of the middle of a loop, whose state would be lost")
            return None
        flops = flops_of(graph, list(inputs)) if counts_flops else 0
        for_compiling(graph)
        return Inner(graph, lift_constants(graph), flops)
    except Exception as error:  # a model may fail to trace in any way; the loop in Python says what to change
        log.refused(NATIVE, error)
        return None


def kinds_of(tensors: Sequence[Tensor]) -> tuple[Hashable, ...]:
    """Return the kind of every tensor."""
    return tuple(kind_of(each) for each in tensors)


@runtime_checkable
class _Native(Protocol):
    def is_native(self) -> bool: ...


def compiled_or_none[Inside, N: _Native](
    inside: Inside | None, make: Callable[[Inside], N], log: EngineLog | None = None
) -> N | None:
    """Return what runs in native code, or None where it cannot be compiled: graphs run from Python would be slower.

    ``log`` takes down the reason; what ``make`` builds takes down its own.
    """
    log = log or EngineLog()
    if inside is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoweringWarning)  # the loop that takes over warns if it is slow, too
        try:
            found = make(inside)
            return found if found.is_native() else None
        except Exception as error:  # a compiler may fail in any way, and the fit goes on without it
            log.refused(NATIVE, error)
            return None
