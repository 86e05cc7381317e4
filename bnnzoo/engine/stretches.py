"""What loops in native code share, whatever they run: the function inside as a graph, the length of stretches, the way back."""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils.flop_counter import FlopCounterMode

from bnnzoo.engine.compiling import for_compiling
from bnnzoo.engine.failures import may_raise
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.graphs import lift_constants, trace
from bnnzoo.engine.reports import EngineLog
from bnnzoo.engine.torch_private import LoweringWarning

__all__ = ["FIRST_BUDGET", "Inner", "compiled_or_none", "inner_graph", "next_budget", "traced_once", "words_of"]

SECONDS_PER_STRETCH = 0.1
"""Time that a stretch should take: interrupts and progress bars wait for its end."""

FIRST_BUDGET, MAX_GROWTH = 64, 4

MAX_TRACED = 8
"""Graphs of models that are kept while many fits of one kind are made."""

_TRACED: OrderedDict[Hashable, "Inner"] = OrderedDict()

NATIVE = "native code"


class Inner(NamedTuple):
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
            graph, _ = trace(function, [tensor.detach().clone() for tensor in inputs])
        if may_raise(graph):
            log.refused(NATIVE, "a decomposition may raise out of the middle of a loop, whose state would be lost")
            return None
        flops = _flops(graph, inputs) if counts_flops else 0
        for_compiling(graph)
        return Inner(graph, lift_constants(graph), flops)
    except Exception as error:  # a model may fail to trace in any way; the loop in Python says what to change
        log.refused(NATIVE, error)
        return None


def traced_once(
    key: Hashable,
    function: Callable[..., tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    *,
    counts_flops: bool,
    log: EngineLog,
) -> Inner | None:
    """Return :func:`inner_graph` of a function or, of many fits of one kind, the graph of an earlier one.

    A graph is taken again if value and gradient at these inputs are those of the function itself: a model that does otherwise
    with other data, or has changed since, is traced anew.
    """
    if key is None or over_all_fits(1) == 1:
        return inner_graph(function, inputs, counts_flops=counts_flops, log=log)
    kinds = tuple((each.shape, each.stride(), each.dtype, each.device) for each in inputs)
    known = _TRACED.pop((key, kinds), None)
    if known is None or not _gives_the_same(known, function, inputs):
        known = inner_graph(function, inputs, counts_flops=counts_flops, log=log)
    if known is not None:
        _TRACED[key, kinds] = known
        while len(_TRACED) > MAX_TRACED:
            _TRACED.popitem(last=False)
    return known


def _gives_the_same(known: Inner, function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor]) -> bool:
    with torch.no_grad():
        found = known.graph(*known.constants, *inputs)
    try:
        right = function(*(each.detach().clone() for each in inputs))
    except Exception:  # what a model refuses is said by the trace
        return False
    share = torch.finfo(inputs[0].dtype).eps ** 0.75
    pairs = zip(found, (each.detach() for each in right), strict=True)
    return all(torch.allclose(new, old, rtol=share, atol=share * float(old.abs().amax())) for new, old in pairs)


def words_of(graph: GraphModule) -> str:
    """Return words that two graphs share if they compute the same: its operations, in a fraction of the time of its code."""
    parts = (module.graph.nodes for module in graph.modules() if isinstance(module, GraphModule))
    return "\n".join(f"{node} {node.op} {node.target} {node.args} {node.kwargs}" for nodes in parts for node in nodes)


def _flops(graph: GraphModule, inputs: Sequence[Tensor]) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        graph(*inputs)
    return counter.get_total_flops()


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


def next_budget(budget: int, num_steps: int, seconds: float) -> int:
    """Return the number of steps of the next stretch, after one in which ``num_steps`` took so many seconds."""
    return max(1, min(int(num_steps * SECONDS_PER_STRETCH / seconds), budget * MAX_GROWTH))
