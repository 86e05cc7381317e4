"""Loops that run natively: many steps of a pure function become one call of compiled code, which Python only starts."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine import pytree
from bnnzoo.engine.agreement import Leaves, disagreement
from bnnzoo.engine.compiling import compile_loops, has_compiler
from bnnzoo.engine.cpp.building import compile_in_cpp, compiled_before
from bnnzoo.engine.cpp.translate import for_native
from bnnzoo.engine.graphs import trace_loops, trace_shapes
from bnnzoo.engine.hoisting import hoist
from bnnzoo.engine.registers import HELD, Registers, holding, is_short
from bnnzoo.engine.reports import Engine, EngineLog, EngineReport, first_line
from bnnzoo.engine.torch_private import WHILE_LOOP, LoweringWarning, decompositions, is_tracing_loops
from bnnzoo.engine.tracer import is_writing_loops, loop_written_down

__all__ = ["Chunk", "Compiles", "is_written_down", "while_loop"]

type Going = Callable[[Any, Any], Tensor]
type Body = Callable[[Any, Any], Any]
type How = Literal["compiled", "traced", "eager"]
type Compiles = bool | Literal["cpp"]

ENGINES: dict[How, Engine] = {"compiled": "native", "traced": "graph", "eager": "python"}


class Lowering(NamedTuple):
    """How a loop runs, the function of packed tensors that runs it, and how it came to that."""

    how: How
    function: Callable[..., Any]
    report: EngineReport


COMPILED: dict[Hashable, Lowering] = {}
"""Native code of this process by what it was made from, so that an equal loop is neither traced nor compiled again."""


def is_written_down() -> bool:
    """Tell whether what runs is being written down as a loop for native code, so that no number in it is known."""
    return is_tracing_loops() or is_writing_loops()


def while_loop(going: Going, body: Body, state: Any, fixed: Any = ()) -> Any:
    """Return ``state`` after ``state = body(state, fixed)`` as long as ``going(state, fixed)``.

    Loops nest, and may stand in a :class:`Chunk`. All that changes is in ``state`` and all that does not in ``fixed``,
    pytrees of tensors; the functions capture no tensor. Called outside a chunk, it runs as Python.

    Parameters
    ----------
    going : callable
        ``(state, fixed) -> bool tensor []``.
    body : callable
        ``(state, fixed) -> state``, pure. A row written by ``index_put`` into a matrix of the state is written in place.
    state, fixed : pytree of Tensor

    Examples
    --------
    >>> import torch
    >>> doubled = while_loop(lambda x, last: x < last, lambda x, last: 2 * x, torch.tensor(1), torch.tensor(100))
    >>> int(doubled)
    128
    """
    if not is_written_down():
        while bool(going(state, fixed)):
            state = body(state, fixed)
        return state
    leaves, spec = pytree.tree_flatten(state)
    constants = pytree.tree_leaves(fixed)
    registers, memory, loop = _prepare(going, body, state, fixed)
    go = torch.ones((), dtype=torch.bool, device=leaves[0].device)
    leaves = _to_write_over(leaves, constants)
    carried = registers.pack(leaves)
    found = loop(*carried, go, *memory.pack(constants))[:-1]
    # a buffer was changed in place: handed back as what it was, it need not be written over itself
    ended = [
        old if old is leaf else new for old, leaf, new in zip(carried, _alone(registers, leaves), found, strict=True)
    ]
    return pytree.tree_unflatten(registers.unpack(ended), spec)


class Chunk:
    """A loop whose state stays in a few tensors, and which runs on these in place, compiled where that can be done.

    Parameters
    ----------
    going, body : callable
        As in :func:`while_loop`.
    state, fixed : pytree of Tensor
        Examples of what the loop will run on: shapes and types count, values do not.
    key : hashable, optional
        What stands for ``going`` and ``body``: two chunks of equal keys and shapes share their native code.
    compiles : bool or "cpp"
        False to run the traced graph, "cpp" to run it where it holds what is not written in C++ here: torch's compiler, which
        takes over otherwise, needs some ten times as long.
    log : EngineLog, optional
        Takes down how it runs, and why.

    Attributes
    ----------
    how : {"compiled", "traced", "eager"}
        How it runs: as native code, as graphs called from a loop in Python, or as the Python functions themselves.
    was_known : bool
        Whether this process had made an equal loop before.

    Examples
    --------
    >>> import torch
    >>> chunk = Chunk(lambda x, last: x < last, lambda x, last: 2 * x, torch.tensor(1), torch.tensor(9), compiles=False)
    >>> state = chunk.pack(torch.tensor(1))
    >>> chunk(state, chunk.pack_fixed(torch.tensor(100)))
    >>> int(chunk.unpack(state))
    128
    """

    def __init__(
        self,
        going: Going,
        body: Body,
        state: Any,
        fixed: Any = (),
        key: Hashable = None,
        compiles: Compiles = True,
        log: EngineLog | None = None,
    ) -> None:
        leaves, self._spec = _dense(state), pytree.tree_structure(state)
        constants, self._fixed_spec = _dense(fixed), pytree.tree_structure(fixed)
        self._registers, self._memory, loop = _prepare(going, body, state, fixed)
        self._go = torch.ones((), dtype=torch.bool, device=leaves[0].device)
        inputs = [*self._registers.pack(leaves), self._go, *self._memory.pack(constants)]
        kinds = tuple((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in inputs)
        self.log = log or EngineLog()
        found = COMPILED.get((key, kinds, compiles)) if key is not None else None
        self.was_known = found is not None
        lowering = found or _lowered(loop, inputs, compiles, _name(key, inputs), self._leaves)
        self.how, self._function = lowering.how, lowering.function
        self.log.include(lowering.report, counts_seconds=found is None)
        self.log.chose(ENGINES[self.how])
        if key is not None:
            COMPILED[key, kinds, compiles] = lowering

    def pack(self, state: Any) -> list[Tensor]:
        """Return new tensors that hold ``state``, which the loop may write over."""
        return self._registers.pack(_to_write_over(_dense(state), ()))

    def pack_fixed(self, fixed: Any) -> list[Tensor]:
        """Return tensors that hold ``fixed``; large ones whose rows lie one behind the other are not copied."""
        return self._memory.pack(_dense(fixed))

    def change(self, tensors: Sequence[Tensor], change: Callable[[Any], Any]) -> None:
        """Let ``tensors`` hold ``change(state)``, where ``state`` is what they hold; only what differs is written."""
        old = self._registers.unpack(tensors)
        new = change(pytree.tree_unflatten(old, self._spec))
        self._registers.store(tensors, old, pytree.tree_leaves(new))

    def unpack(self, tensors: Sequence[Tensor]) -> Any:
        """Return the state that tensors hold, as views of them; truth values are copies."""
        return pytree.tree_unflatten(self._registers.unpack(tensors), self._spec)

    def _leaves(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return all that tensors of state, flag and constants hold, leaf by leaf."""
        num = self._registers.num_tensors
        return [*self._registers.unpack(tensors[:num]), tensors[num], *self._memory.unpack(tensors[num + 1 :])]

    def __call__(self, state: Sequence[Tensor], fixed: Sequence[Tensor]) -> None:
        """Run the loop to its end; ``state`` is changed in place. Native code lets go of the interpreter lock."""
        with torch.no_grad():
            self._function(*state, self._go.clone(), *fixed)


def _name(key: Hashable, inputs: list[Tensor]) -> str | None:
    """Return words that stand for a loop in any process, None if there are none: an object may be known by its address."""
    words = repr((key, [(tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in inputs]))
    return None if key is None or " at 0x" in words else words


def _lowered(
    loop: Callable[..., Any], inputs: list[Tensor], compiles: Compiles, name: str | None, leaves: Leaves
) -> Lowering:
    """Return how a loop runs: as code of an earlier process, as native code made now, as a graph, or as Python."""
    before = compiled_before(name) if compiles and name is not None else None
    log = EngineLog()
    if before is not None:
        return Lowering("compiled", before, log.report())

    def changed(*tensors: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = loop(*tensors)[-1:]
        return found

    try:
        with log.timed("tracing"):
            graph = _traced(changed, inputs)
    except Exception as error:  # what cannot be traced runs as Python, whatever the reason
        log.refused("graph", error)
        warnings.warn(
            f"A loop could not be traced and runs as Python ({first_line(error)}).", LoweringWarning, stacklevel=4
        )
        return Lowering("eager", loop, log.report())
    native = _native(graph, inputs, name, leaves, log) if compiles else None
    if native is None and compiles and compiles != "cpp" and has_compiler(log):
        # torch's compiler knows operations that are not written in C++ here
        with log.timed("tracing"):
            whole = trace_shapes(changed, inputs, decompositions())
        with log.timed("compiling"):
            native = compile_loops(whole, log)
    return Lowering("traced", graph, log.report()) if native is None else Lowering("compiled", native, log.report())


def _traced(changed: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor]) -> GraphModule:
    """Return the graph of a loop: of its first step, or of none where that step fails, as it may if it is never to be taken."""
    try:
        graph = trace_loops(changed, inputs, for_native())
    except Exception:
        return trace_shapes(changed, inputs, for_native())
    hoist(graph)
    return graph


def _native(
    graph: GraphModule, inputs: list[Tensor], name: str | None, leaves: Leaves, log: EngineLog
) -> Callable[..., Any] | None:
    """Return native code of a graph, in C++ written here, if it does to the example what the graph does."""
    try:
        with log.timed("compiling"):
            found = compile_in_cpp(graph)
        reason = disagreement(found.call, graph, inputs, leaves)
    except Exception as error:  # whatever is not foreseen here: torch's own compiler may know more
        reason = first_line(error)
    if reason is not None:
        log.refused("native code", reason)
        return None
    if name is not None:
        found.remember(name)
    return found.call


def _prepare(
    going: Going, body: Body, state: Any, fixed: Any
) -> tuple[Registers, Registers, Callable[..., tuple[Tensor, ...]]]:
    """Return how state and constants are packed, and the loop as a function of the packed tensors, which it changes."""
    spec, fixed_spec = pytree.tree_structure(state), pytree.tree_structure(fixed)
    # the leaves of a state part by part: parts are packed apart, so that an inner loop can take over one of them
    registers = Registers([pytree.tree_leaves(part) for part in (state if isinstance(state, tuple) else (state,))])
    memory = Registers([pytree.tree_leaves(fixed)])
    num = registers.num_tensors

    def trees(tensors: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        return registers.unpack(tensors[:num]), pytree.tree_unflatten(memory.unpack(tensors[num:]), fixed_spec)

    def flat_going(*tensors: Tensor) -> Tensor:
        return tensors[num]

    def flat_body(*tensors: Tensor) -> tuple[Tensor, ...]:
        carried, go, rest = tensors[:num], tensors[num], tensors[num + 1 :]
        old, constants = trees((*carried, *rest))
        with holding(registers.held(carried, old)):
            state = body(pytree.tree_unflatten(old, spec), constants)
        ahead = going(state, constants)
        registers.store(carried, old, pytree.tree_leaves(state))
        return (*carried, go.copy_(ahead))

    def loop(*tensors: Tensor) -> tuple[Tensor, ...]:
        carried, go, rest = tensors[:num], tensors[num], tensors[num + 1 :]
        old, constants = trees((*carried, *rest))
        go.copy_(going(pytree.tree_unflatten(old, spec), constants))
        return _run(flat_going, flat_body, (*carried, go), rest)

    return registers, memory, loop


def _dense(tree: Any) -> list[Tensor]:
    """Return the leaves of a tree, row by row in memory: native code relies on strides."""
    return [leaf.contiguous() for leaf in pytree.tree_leaves(tree)]


def _to_write_over(leaves: Sequence[Tensor], constants: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves of a state that a loop may write over: copies of those that stand for something else as well."""
    others, held = {id(each) for each in constants}, {name for names in HELD.get() for name in names}
    return [
        each.clone() if id(each) in others or not (id(each) in held or is_short(each.shape)) else each
        for each in leaves
    ]


def _alone(registers: Registers, leaves: Sequence[Tensor]) -> list[Tensor | None]:
    """Return of each tensor the leaf that it is, if it is one."""
    return [leaves[group[0]] if len(group) == 1 else None for group in registers.groups]


def _run(
    going: Callable[..., Tensor],
    body: Callable[..., tuple[Tensor, ...]],
    carried: tuple[Tensor, ...],
    rest: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    if is_tracing_loops():
        found: tuple[Tensor, ...] = WHILE_LOOP(going, body, carried, tuple(rest))
        return found
    if (written := loop_written_down(going, body, carried, tuple(rest))) is not None:
        return written
    while bool(carried[-1]):
        carried = body(*carried, *rest)
    return carried
