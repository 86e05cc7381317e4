"""From a pure function to a plain tensor graph, compiled where that pays for itself."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine import pytree
from bnnzoo.engine.called import as_called
from bnnzoo.engine.choose import CALLS_TO_RECORD, seconds_to_compile
from bnnzoo.engine.compiling import compile_graph
from bnnzoo.engine.decisive import kind_of
from bnnzoo.engine.failures import rescued
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.graphs import copies_of, trace_deciding
from bnnzoo.engine.recording import are_on_gpu, record
from bnnzoo.engine.reports import Engine, EngineLog, first_line
from bnnzoo.engine.torch_private import LoweringWarning, Missing

__all__ = [
    "ENGINES",
    "LoopStep",
    "Lowered",
    "Specialized",
    "clones",
    "flattened",
    "tensors_of",
    "untraced",
]

ENGINES: dict[str, Engine] = {
    "recorded": "cuda graph",
    "compiled": "compiled graph",
    "traced": "graph",
    "eager": "python",
}
"""How a lowered function runs, as reports call it."""


class Specialized:
    """A function lowered for fixed shapes; call it with the arguments it was lowered for, or with other values of them.

    Attributes
    ----------
    how : {"recorded", "compiled", "traced", "eager"}
        How it runs: as a CUDA graph, through inductor, as a tensor graph, or as the Python function itself.
    flat : callable
        The same on flat lists of tensors, for loops in which flattening would cost: ``(*tensors) -> sequence of tensors``.
    worth_compiling_after : float
        Number of calls after which compiling pays; infinite where nothing is left to compile.
    graph : GraphModule or None
        The tensor graph, unless it runs as Python.
    worth_recording_after : float
        Number of calls after which recording the graph as it is pays; infinite on a CPU.
    """

    def __init__(
        self,
        how: str,
        flat: Callable[..., Sequence[Tensor]],
        spec: pytree.TreeSpec,
        worth_compiling_after: float = math.inf,
        graph: GraphModule | None = None,
        worth_recording_after: float = math.inf,
    ) -> None:
        self.how, self._spec, self.graph = how, spec, graph
        self.worth_compiling_after, self.worth_recording_after = worth_compiling_after, worth_recording_after
        self.flat = flat if graph is None else rescued(flat, graph)

    def __call__(self, *args: Any) -> Any:
        """Evaluate with torch's autograd off."""
        with torch.no_grad():
            return self.tree(self.flat(*tensors_of(args)))

    def tree(self, leaves: Sequence[Tensor]) -> Any:
        """Return the result of ``flat`` as the function returns it."""
        return pytree.tree_unflatten(list(leaves), self._spec)

    @property
    def stays_for(self) -> float:
        """Number of calls after which a faster form pays."""
        return min(self.worth_recording_after, self.worth_compiling_after)

    def faster(self, num_calls: float, args: Any, log: EngineLog, num_carried: int = 0) -> "Specialized":
        """Return the form that so many calls repay: compiled, on a GPU recorded before that, or this one.

        Recorded, it keeps the memory of the first ``num_carried`` tensors, as :class:`bnnzoo.engine.recording.Recording` says.
        """
        tensors = tensors_of(args)
        inputs = [*tensors[:num_carried], *clones(tensors[num_carried:])]
        if num_calls > self.worth_compiling_after:
            return self.compiled(inputs, log, num_carried)
        return self.recorded(inputs, log, num_carried) if num_calls > self.worth_recording_after else self

    def recorded(self, inputs: list[Tensor], log: EngineLog, num_carried: int = 0) -> "Specialized":
        """Return a traced graph as a recording, which takes no compiler."""
        assert self.graph is not None
        return self._recorded("traced", self.graph, inputs, log, num_carried, self.worth_compiling_after)

    def compiled(self, inputs: list[Tensor], log: EngineLog | None = None, num_carried: int = 0) -> "Specialized":
        """Return the compiled form of a traced graph, on a GPU recorded, or the graph as it is where neither can be done."""
        assert self.graph is not None
        log = log or EngineLog()
        function = compile_graph(self.graph, inputs, log)
        how, function = ("traced", as_called(self.graph)) if function is None else ("compiled", function)
        return self._recorded(how, function, inputs, log, num_carried)

    def _recorded(
        self,
        how: str,
        function: Callable[..., Sequence[Tensor]],
        inputs: list[Tensor],
        log: EngineLog,
        num_carried: int,
        worth_compiling_after: float = math.inf,
    ) -> "Specialized":
        assert self.graph is not None
        recorded = record(function, self.graph, inputs, log, num_carried)
        how = how if recorded is function else "recorded"
        log.chose(ENGINES[how])
        return Specialized(how, recorded, self._spec, worth_compiling_after, self.graph)


_UNTRACED: ContextVar[bool] = ContextVar("untraced", default=False)


@contextmanager
def untraced(applies: bool = True) -> Iterator[None]:
    """Let every function that would be traced within the body run as Python, on this thread, if this ``applies``.

    Examples
    --------
    >>> import torch
    >>> square = Lowered(lambda x: x * x)
    >>> with untraced():
    ...     square.specialize(torch.ones(2)).how
    'eager'
    """
    token = _UNTRACED.set(applies or _UNTRACED.get())
    try:
        yield
    finally:
        _UNTRACED.reset(token)


class Lowered:
    """A pure function that is traced, and if need be compiled, once for each combination of static shapes.

    Parameters
    ----------
    function : callable
        Pure function of tensors, pytrees of tensors, and constants such as numbers and None.
    fallback : callable, optional
        What to run where ``function`` cannot be traced.
    log : EngineLog, optional
        Takes down how it runs, and why.

    Examples
    --------
    >>> import torch
    >>> square = Lowered(lambda x: {"y": x * x})
    >>> square(torch.tensor([1.0, 3.0]))["y"].tolist()
    [1.0, 9.0]
    """

    def __init__(
        self, function: Callable[..., Any], fallback: Callable[..., Any] | None = None, log: EngineLog | None = None
    ) -> None:
        self._function = function
        self._fallback = fallback or function
        self.log = log or EngineLog()
        self._cache: dict[tuple[Any, ...], Specialized] = {}

    @property
    def is_plain(self) -> bool:
        """Whether it runs as traced graphs alone."""
        return all(found.how == "traced" for found in self._cache.values())

    def __call__(self, *args: Any) -> Any:
        """Evaluate through the graph for these shapes, tracing it if there is none yet."""
        return self.specialize(*args)(*args)

    def specialize(self, *args: Any, num_calls: float = 1) -> Specialized:
        """Return the function lowered for the shapes and constants of ``args``.

        Parameters
        ----------
        *args
            Example arguments. Tensors stand for any values of the same shape; everything else is a constant.
        num_calls : float
            How often it is going to be, or has been, called: decides whether compiling pays.
        """
        untraced = _UNTRACED.get()
        key = (untraced, *signature(args))
        if key not in self._cache:
            lowered = (
                _as_python(self._function, self._fallback, args)
                if untraced
                else _lower(self._function, self._fallback, args, self.log)
            )
            key = (untraced, *signature(args))  # some may have come to decide
            self._cache[key] = lowered
        found = self._cache[key]
        if num_calls > found.stays_for:
            self._cache[key] = found = found.faster(num_calls, args, self.log)
        return found


class LoopStep:
    """A function called over and over in a loop, on flat tensors; it compiles itself once it has run long enough.

    A loop that is sure to be long compiles at once; else at most about as much time is spent on compiling as on running. The
    choice depends on numbers of calls alone, so that a run can be repeated; ``num_calls`` is set where a run goes on that was
    broken off.

    Parameters
    ----------
    function : callable
        Pure function of pytrees of tensors.
    *args
        Example arguments.
    fallback : callable, optional
        What to run where ``function`` cannot be traced.
    at_least : int
        Number of calls there will be, if all goes well.
    log : EngineLog, optional
        Takes down how it runs, and why.
    num_carried : int
        How many of the first tensors of the result are the first arguments of the next call, which may overwrite them.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *args: Any,
        fallback: Callable[..., Any] | None = None,
        at_least: int = 0,
        log: EngineLog | None = None,
        num_carried: int = 0,
    ) -> None:
        self._num_carried = num_carried
        self.log = log or EngineLog()
        self._specialized = Lowered(function, fallback, self.log).specialize(*args)
        self._expected = over_all_fits(at_least)
        self.num_calls = 0

    @property
    def how(self) -> str:
        """How it runs now; see :class:`Specialized`."""
        return self._specialized.how

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Evaluate at the leaves of the arguments and return the leaves of the result."""
        self.num_calls += 1
        calls = max(self.num_calls, self._expected)
        if calls > self._specialized.stays_for:
            self._specialized = self._specialized.faster(calls, tensors, self.log, self._num_carried)
        return self._specialized.flat(*tensors)


def _as_python(function: Callable[..., Any], fallback: Callable[..., Any], args: tuple[Any, ...]) -> Specialized:
    """Return a function that is never traced, or its fallback where it cannot be evaluated."""
    flat, spec_of = flattened(function, args)
    try:
        flat(*clones(args))
    except Exception:  # what a model refuses under vmap may be anything
        flat, spec_of = flattened(fallback, args)
        flat(*clones(args))
    return Specialized("eager", flat, spec_of[0])


@cache
def _keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next one; it would hand it back, and fetch it page by page again.

    glibc does so for blocks no larger than the largest one freed so far, up to 32 MiB: this frees one, never touched.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _lower(
    function: Callable[..., Any], fallback: Callable[..., Any], args: tuple[Any, ...], log: EngineLog
) -> Specialized:
    flat, spec_of = flattened(function, args)
    inputs = clones(args)
    _keep_freed_memory()
    try:
        with log.timed("tracing"):
            graph, seconds = trace_deciding(flat, tensors_of(args))
    except Exception as error:  # a model may fail to trace in any way; what it means is the same
        log.refused("graph", error)
        log.chose("python")
        if not isinstance(error, Missing):  # of which a warning was given when bnnzoo was imported
            warnings.warn(
                f"The model could not be traced into a tensor graph and runs as Python, one chain after the other "
                f"({first_line(error)}). Replace .item(), if-statements on tensor values and numpy calls by torch operations.",
                LoweringWarning,
                stacklevel=4,
            )
        flat, spec_of = flattened(fallback, args)
        flat(*inputs)
        return Specialized("eager", flat, spec_of[0])
    log.chose("graph")
    after = CALLS_TO_RECORD if are_on_gpu(inputs) else math.inf
    compiling = seconds_to_compile(len(graph.graph.nodes))
    worth = compiling / seconds if seconds else math.inf  # a function of nothing takes none
    return Specialized("traced", as_called(graph), spec_of[0], worth, graph, after)


def clones(args: Any) -> list[Tensor]:
    """Copy every tensor: tracing tells inputs apart by identity, and one passed twice would become one input."""
    return copies_of(tensors_of(args))


def flattened(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Callable[..., tuple[Tensor, ...]], list[pytree.TreeSpec]]:
    """Turn ``function`` into one of flat tensors with its constants bound; its output's structure is left in the list."""
    leaves, spec = pytree.tree_flatten(args)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    spec_of: list[pytree.TreeSpec] = []

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        values = list(constants)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        outputs, out_spec = pytree.tree_flatten(function(*pytree.tree_unflatten(values, spec)))
        spec_of[:] = [out_spec]
        return tuple(outputs)

    return flat, spec_of


def tensors_of(args: Any) -> list[Tensor]:
    """Return the tensors in a tree."""
    return [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)]


def signature(args: Any) -> tuple[Any, ...]:
    """Return what arguments share for which a graph of a function serves alike."""
    return tuple(_signature(leaf) for leaf in pytree.tree_leaves(args))


def _signature(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return kind_of(leaf)
    try:
        hash(leaf)
    except TypeError:
        return Same(leaf)
    return leaf


@dataclass(frozen=True, eq=False)
class Same:
    """What stands for an object in a key, whether or not it can be hashed: the object that it is, and none that equals it."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
