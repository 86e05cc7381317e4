"""One scope of C++: the values of a graph's nodes so far, and the statements that compute them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from bnnzoo.engine.cpp.formulas import literal
from bnnzoo.engine.cpp.nests import Nest, Statement, Statements
from bnnzoo.engine.cpp.values import (
    TYPES,
    Access,
    Affine,
    Body,
    Buffer,
    Cannot,
    Lazy,
    Shape,
    View,
    contiguous_strides,
    count,
)

__all__ = ["CppFunction", "Scope", "Value", "index_over", "innermost"]

type Value = View | Lazy
type Handler = Callable[["Scope", Node], Any]

ON_STACK = 4096
"""Bytes up to which a temporary tensor lies on the stack."""

MOST_IN_ONE = 100
"""Operations of an expression from which on it is evaluated at once: Python calls functions only so deep."""

ALIGNMENT = 64


class CppFunction:
    """What all scopes of a function share: names, memory, and what is computed once at the beginning."""

    def __init__(self) -> None:
        self.arena_size = 0
        self.first_lines: list[str] = []
        self._num_names = 0
        self._packed: dict[View, View] = {}

    def name(self, letter: str) -> str:
        """Return a new name."""
        self._num_names += 1
        return f"{letter}{self._num_names}"

    def buffer(self, dtype: torch.dtype, size: int, is_constant: bool = False) -> tuple[Buffer, str]:
        """Return new memory and its declaration."""
        if dtype not in TYPES:
            raise Cannot(f"entries of type {dtype}")
        found, kind = Buffer(self.name("t"), dtype, size, is_constant), TYPES[dtype]
        num_bytes = max(size, 1) * dtype.itemsize
        if num_bytes <= ON_STACK:
            return found, f"alignas({ALIGNMENT}) {kind} {found.name}[{max(size, 1)}];"
        place = self.arena_size
        self.arena_size += -(-num_bytes // ALIGNMENT) * ALIGNMENT
        return found, f"{kind}* const {found.name} = ({kind}*)(arena + {place});"

    def packed(self, view: View) -> View:
        """Return a copy of a tensor that never changes, made once, whose last dimension runs along memory."""
        if view not in self._packed:
            buffer, declaration = self.buffer(view.dtype, count(view.shape), is_constant=True)
            new = View(buffer, view.shape, contiguous_strides(view.shape))
            nest, (index, sizes) = Statements(), index_over(range(len(view.shape)), view.shape)
            loop = nest.nest_for(sizes, [], [])
            loop.body.store(buffer, new.read.place(index), view.lazy().emit(loop.body, index))
            self.first_lines += [declaration, *nest.render()]
            self._packed[view] = new
        return self._packed[view]


class Scope:
    """The nodes of one graph.

    Parameters
    ----------
    program : CppFunction
    graph : GraphModule
    arguments : sequence
        Values of the graph's placeholders.
    handlers : mapping
        How each operation is written.
    """

    def __init__(
        self, program: CppFunction, graph: GraphModule, arguments: Sequence[Any], handlers: Mapping[Any, Handler]
    ) -> None:
        self.program, self.graph, self.handlers = program, graph, handlers
        self.statements = Statements()
        self.declarations: list[str] = []
        self.values: dict[Node, Any] = {}
        self._arguments = iter(arguments)
        self._num_left = {node: len(node.users) for node in graph.graph.nodes}

    def run(self) -> tuple[Any, ...]:
        """Write every node and return the graph's outputs."""
        for node in self.graph.graph.nodes:
            if node.op == "output":
                outputs = node.args[0]
                return tuple(self.of(each) for each in (outputs if isinstance(outputs, list | tuple) else [outputs]))
            self.values[node] = self._write(node)
            for argument in node.all_input_nodes:
                self._num_left[argument] -= 1
        raise Cannot("a graph without an output")

    def render(self) -> list[str]:
        """Return all lines."""
        return [*self.declarations, *self.statements.render()]

    def of(self, argument: Any) -> Any:
        """Return the value of an argument."""
        return self.values[argument] if isinstance(argument, Node) else argument

    def lazy(self, argument: Any) -> Lazy:
        """Return an argument as an expression."""
        value = self.of(argument)
        return value.lazy() if isinstance(value, View) else value

    def buffer(self, dtype: torch.dtype, size: int) -> Buffer:
        """Return new memory."""
        found, declaration = self.program.buffer(dtype, size)
        self.declarations.append(declaration)
        return found

    def number(self, lazy: Lazy) -> Lazy:
        """Evaluate the only entry of a tensor now."""
        name, body = self.program.name("s"), Body()
        value = body.let(lazy.dtype, lazy.emit(body, (Affine(),) * len(lazy.shape)))
        lines = [f"{TYPES[lazy.dtype]} {name};", "{", *body.lines, f"{name} = {value};", "}"]
        self.statements.add(Statement(lines, lazy.accesses(), [Access(name, 0, 1)]))
        return self.named(name, lazy.shape, lazy.dtype)

    def named(self, name: str, shape: Shape, dtype: torch.dtype) -> Lazy:
        """Return the tensor whose only entry is the number of that name."""
        return Lazy(shape, dtype, lambda body, index: name, uses=(Access(name, 0, 1),))

    def kept(self, node: Node, lazy: Lazy) -> Value:
        """Return the value of a node: a number at once, in memory if evaluating it at each use costs more, else as it is."""
        if count(lazy.shape) == 1:
            return self.number(lazy)
        users = effective_users(node)
        repeated = any(_size(user) > count(lazy.shape) for user in users)
        costs = lazy.cost > 1 and (len(users) > 1 or repeated)
        return self.memory(lazy) if costs or lazy.cost > MOST_IN_ONE else lazy

    def memory(self, value: Value, in_order: bool = False) -> View:
        """Return a value in memory, laid out as it is computed best, or with its last dimension along memory."""
        if isinstance(value, View):
            return value
        order = tuple(range(len(value.shape))) if in_order else best_order(value)
        strides = dict(zip(order, contiguous_strides(tuple(value.shape[dim] for dim in order)), strict=True))
        view = View(
            self.buffer(value.dtype, count(value.shape)), value.shape, tuple(strides[d] for d in range(len(order)))
        )
        self.store(view, value, order)
        return view

    def store(self, view: View, value: Lazy, order: Sequence[int] | None = None) -> None:
        """Write a value, of the same shape, to memory."""
        order = order if order is not None else best_order(view.lazy())
        index, sizes = index_over(order, value.shape)
        place = view.read.place(index)
        nest = self.nest(sizes, value, index, [view.read.access(index)])
        nest.body.store(view.buffer, place, converted(nest.body, value, view.dtype, index))

    def nest(self, sizes: Shape, value: Lazy, index: tuple[Affine, ...], defines: Sequence[Access]) -> Nest:
        """Return a nest of loops whose steps read what ``value`` reads at ``index``."""
        return self.statements.nest_for(sizes, value.accesses(index), defines)

    def before_writing(self, node: Node, accesses: Sequence[Access]) -> None:
        """Evaluate now what has yet to be evaluated, is used after ``node``, and reads what ``node`` is about to write."""
        for other, value in self.values.items():
            left = self._num_left[other] - (other in node.all_input_nodes)
            if left and isinstance(value, Lazy) and any(a.meets(b) for a in value.accesses() for b in accesses):
                self.values[other] = self.memory(value)

    def _write(self, node: Node) -> Any:
        if node.op == "placeholder":
            return next(self._arguments)
        if node.op == "get_attr":
            found = self.graph
            for part in str(node.target).split("."):
                found = getattr(found, part)
            if isinstance(found, torch.Tensor):
                # a small tensor whose entries stand in the source
                if found.numel() * found.element_size() > ON_STACK or found.dtype not in TYPES:
                    raise Cannot("a large constant")
                buffer = Buffer(self.program.name("k"), found.dtype, found.numel(), is_constant=True)
                entries = ", ".join(literal(each, found.dtype) for each in found.flatten().tolist()) or "0"
                kind = TYPES[found.dtype]
                self.declarations.append(f"static const {kind} {buffer.name}[] = {{{entries}}};")
                return View(buffer, tuple(found.shape), contiguous_strides(tuple(found.shape)))
            return found
        handler = self.handlers.get(node.target)
        if handler is None:
            raise Cannot(str(node.target))
        return handler(self, node)


def converted(body: Body, value: Lazy, dtype: torch.dtype, index: tuple[Affine, ...]) -> str:
    """Return an entry of a value in another type."""
    name = value.emit(body, index)
    return name if value.dtype == dtype else body.let(dtype, f"({TYPES[dtype]}){name}")


def index_over(order: Sequence[int], shape: Shape) -> tuple[tuple[Affine, ...], Shape]:
    """Return the place in each dimension for loops over the dimensions in some order, and how many steps each loop takes."""
    loops = [dim for dim in order if shape[dim] != 1]
    index = tuple(Affine({f"i{loops.index(dim)}": 1}) if dim in loops else Affine() for dim in range(len(shape)))
    return index, tuple(shape[dim] for dim in loops)


def best_order(value: Lazy) -> tuple[int, ...]:
    """Return dimensions in the order in which to loop over them: innermost the one that runs along memory."""
    dims = list(range(len(value.shape)))
    last = innermost(value)
    return tuple([dim for dim in dims if dim != last] + ([last] if dims else []))


def innermost(value: Lazy) -> int:
    """Return the dimension along which the largest reads of an expression run along memory, else the last one."""
    votes = [
        sum(read.extent for read in value.reads if read.strides[dim] == 1) if value.shape[dim] > 1 else -1
        for dim in range(len(value.shape))
    ]
    return max(range(len(votes)), key=lambda dim: (votes[dim], dim), default=0)


def effective_users(node: Node) -> list[Node]:
    """Return who uses a node's value, seen through changes of shape."""
    found: list[Node] = []
    for user in node.users:
        found += effective_users(user) if getattr(user.target, "is_view", False) and user.users else [user]
    return found


def _size(node: Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else 0
