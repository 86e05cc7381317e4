"""Writing down the operations of a function as it runs, as a graph."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils.weak import WeakTensorKeyDictionary

from bnnzoo.engine.decisive import ValueAsked, can_decide, content_of
from bnnzoo.engine.failures import Unfailing
from bnnzoo.engine.torch_private import WHILE_LOOP, DispatchMode, can_decompose, graph_module, require_graphs, schema

__all__ = ["is_writing_loops", "loop_written_down", "operations_of"]

LIFTS = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}

BY_PLACES = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default}

SMALL = 4096
"""Entries up to which a tensor stands for itself in the metadata; of a larger one only shape and type are kept."""


def operations_of(
    flat: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    decompositions: Mapping[Any, Callable[..., Any]],
    *,
    with_loops: bool = False,
) -> GraphModule:
    """Run a function of flat tensors and return what it did as a graph, with the tensor that each node stands for.

    A graph of thousands of operations takes a third of the time of ``make_fx``, which can do more.

    Parameters
    ----------
    flat : callable
    inputs : sequence of Tensor
        All different.
    decompositions : mapping
        How some operations are written with others.
    with_loops : bool
        Whether a loop of :func:`loop_written_down` is one operation, with graphs inside; its first step alone is taken.

    Raises
    ------
    ValueAsked
        If the function asks for the value of a tensor that depends on its inputs or on random numbers; inputs that
        :func:`bnnzoo.engine.decisive.decide` are constants.

    Examples
    --------
    >>> graph = operations_of(lambda x: (x.exp() + 1,), [torch.zeros(2)], {})
    >>> [node.name for node in graph.graph.nodes if node.op == "call_function"], graph(torch.zeros(2))[0].tolist()
    (['exp_default', 'add_tensor'], [2.0, 2.0])
    """
    require_graphs()
    tracer = _Tracer(decompositions)
    token = TRACER.set(tracer if with_loops else None)
    try:
        with tracer:
            found, _ = tracer.graph_of(flat, inputs)
    finally:
        TRACER.reset(token)
    return found


def is_writing_loops() -> bool:
    """Tell whether operations are being written down, loops among them."""
    return TRACER.get() is not None


def loop_written_down(
    going: Callable[..., Tensor],
    body: Callable[..., tuple[Tensor, ...]],
    carried: tuple[Tensor, ...],
    rest: tuple[Tensor, ...],
) -> tuple[Tensor, ...] | None:
    """Write down a loop of flat tensors as one operation, where operations are being written down, and take its first step.

    Returns
    -------
    tuple of Tensor or None
        What the loop carries after the step, None where nothing is written down.

    Raises
    ------
    RuntimeError
        If a function of the loop takes a tensor of outside that is not among its arguments.
    """
    tracer = TRACER.get()
    return None if tracer is None else tracer.loop(going, body, carried, rest)


class _Known(NamedTuple):
    """What does not change about an operation, looked up once."""

    is_composite: bool
    is_random: bool
    asks_for_value: bool
    changes_shape: bool
    has_any_size: bool


@cache
def _known_of(func: Any) -> _Known:
    tags = (
        torch.Tag.nondeterministic_seeded,
        torch.Tag.data_dependent_output,
        torch.Tag.inplace_view,
        torch.Tag.dynamic_output_shape,
    )
    return _Known(can_decompose(func), *(tag in func.tags for tag in tags))


class _Page:
    """A graph that is being written, and where its tensors come from."""

    def __init__(self) -> None:
        self.graph, self.constants = Graph(), torch.nn.Module()
        self._kept: dict[int, tuple[Tensor, Node]] = {}
        self._large: Any = WeakTensorKeyDictionary()
        self.varying: set[Node] = set()
        self.inputs: Sequence[Tensor] = ()

    def keep(self, tensor: Tensor, node: Node, varies: bool = True) -> None:
        """Remember which node a tensor comes from, and whether its values may differ the next time."""
        if varies:
            self.varying.add(node)
        if tensor.numel() <= SMALL:
            self._kept[id(tensor)] = (tensor, node)
            node.meta["val"] = tensor
        else:
            self._large[tensor] = node
            node.meta["val"] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        node.meta["device"] = tensor.device

    def described(self, value: Any) -> Any:
        """Return what the metadata hold of a result, or of a part of one."""
        node = self.find(value) if isinstance(value, Tensor) else None
        return value if node is None else node.meta["val"]

    def find(self, tensor: Tensor) -> Node | None:
        """Return where a tensor comes from, None if no operation of this graph has made it."""
        kept = self._kept.get(id(tensor))  # which holds the tensor, so that no other one has its number
        node: Node | None = kept[1] if kept else self._large.get(tensor)
        return node

    def inputs_of(self, nodes: Sequence[Node]) -> set[int]:
        """Return which inputs of the graph these nodes depend on."""
        places = {node: i for i, node in enumerate(self.graph.find_nodes(op="placeholder"))}
        found, left = set(nodes), list(nodes)
        while left:
            new = set(left.pop().all_input_nodes) - found
            found |= new
            left += new
        return {places[node] for node in found if node in places}

    def part(self, module: GraphModule) -> Node:
        """Return where a graph inside of this one stands."""
        name = f"loop{len(self.graph.nodes)}"
        self.constants.add_module(name, module)
        return self.graph.create_node("get_attr", name)


class _Tracer(DispatchMode):
    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self._decompositions = decompositions
        # the graph does not depend on the values of tensors, so that it does not matter whether anything fails at these
        self._run = Unfailing()
        self._pages: list[_Page] = []
        self._is_idle = False

    @property
    def _page(self) -> _Page:
        return self._pages[-1]

    def graph_of(self, flat: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[GraphModule, Any]:
        """Return what a function does as a graph of its own, and its value or values."""
        page = _Page()
        with self._idle():
            page.inputs = inputs
            for i, tensor in enumerate(inputs):
                node = page.graph.placeholder(f"input{i}")
                if content_of(tensor) is None:
                    page.keep(tensor, node)
        self._pages.append(page)
        try:
            outputs = flat(*inputs)
            with self._idle():
                page.graph.output(self.written(outputs if isinstance(outputs, Tensor) else tuple(outputs)))
        finally:
            self._pages.pop()
        return graph_module(page.constants, page.graph), outputs

    def loop(
        self,
        going: Callable[..., Tensor],
        body: Callable[..., tuple[Tensor, ...]],
        carried: tuple[Tensor, ...],
        rest: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Write down a loop, and return what it carries after its first step."""
        tensors = (*carried, *rest)
        with self._idle():
            apart, again = ([each.clone() for each in tensors] for _ in range(2))
        condition, _ = self.graph_of(going, again)
        step, found = self.graph_of(body, apart)
        with self._idle():
            parts = (self._page.part(condition), self._page.part(step))
            node = self._page.graph.call_function(WHILE_LOOP, (*parts, self.written(carried), self.written(rest)))
            self._keep_all(found, node, varies=True)
        return tuple(found)

    @contextmanager
    def _idle(self) -> Iterator[None]:
        self._is_idle = True
        try:
            yield
        finally:
            self._is_idle = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim" or self._is_idle:
            return func(*args, **kwargs)
        if func in self._decompositions:
            with self:
                result = self._decompositions[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        known = _known_of(func)
        if known.is_composite:
            with self:
                return func.decompose(*args, **kwargs)
        return self._written_down(func, known, args, kwargs)

    def _written_down(self, func: Any, known: "_Known", args: Any, kwargs: Any) -> Any:
        if known.is_random and any(isinstance(each, torch.Generator) for each in (*args, *kwargs.values())):
            raise RuntimeError(f"Numbers are drawn from a torch.Generator, which no graph can hold ({func}).")
        if func in LIFTS:  # of a new constant, which later operations may write into
            self.node_of(args[0], args[0].clone())
        new_args, new_kwargs = self.written(args), self.written(kwargs)
        if known.changes_shape:
            # the operation that gives a view of the shape which func is about to give the tensor itself
            self.node_of(args[0]).meta["val"] = args[0].detach()
            of = getattr(torch.ops.aten, schema(func).name.removeprefix("aten::").removesuffix("_"))
            found = (getattr(of, name) for name in of.overloads())
            target = next(each for each in found if _argument_types(each) == _argument_types(func))
        else:
            target = func
        page = self._page
        node = page.graph.call_function(target, new_args, new_kwargs)
        varies = known.is_random or not page.varying.isdisjoint(node.all_input_nodes)
        if known.asks_for_value:
            of = node.all_input_nodes
            page.graph.erase_node(node)  # a caller that can do without the value may go on
            if varies:
                raise ValueAsked(func, page.inputs_of(of))
            return func(*args, **kwargs)
        # of these an operation needs the values to know which places, and how many, it reads or writes
        conditions: list[Node] = []
        if func in BY_PLACES:
            conditions = [e for e in new_args[1] if isinstance(e, Node) and e.meta["val"].dtype == torch.bool]
        elif func in (torch.ops.aten.masked_scatter.default, torch.ops.aten.masked_scatter_backward.default):
            conditions = [new_args[1]]
        elif known.has_any_size:
            conditions = [each for each in new_args if isinstance(each, Node)]
        if varies and conditions:
            asked = page.inputs_of([each for each in conditions if each in page.varying])
            if asked and all(can_decide(page.inputs[place]) for place in asked):
                raise ValueAsked(func, asked)
        result = self._run(func, args, kwargs)
        self._keep_all(result, node, varies)
        return result

    def _keep_all(self, result: Any, node: Node, varies: bool) -> None:
        page = self._page
        if isinstance(result, Tensor):
            page.keep(result, node, varies)
        elif isinstance(result, tuple | list):
            for i, each in enumerate(result):
                if isinstance(each, Tensor):
                    page.keep(each, page.graph.call_function(operator.getitem, (node, i)), varies)
            node.meta["val"] = tuple(page.described(each) for each in result)

    def node_of(self, tensor: Tensor, value: Tensor | None = None) -> Node:
        """Return where a tensor comes from: one that no operation has made is a constant, of its own or another value."""
        page = self._page
        node = page.find(tensor)
        if node is None:
            for outer in self._pages[:-1]:
                if outer.find(tensor) in outer.varying:
                    raise RuntimeError(
                        "A function of a loop takes a tensor of outside that is not in its state or `fixed`."
                    )
            name = f"constant{len(page.graph.nodes)}"
            page.constants.register_buffer(name, tensor if value is None else value)
            node = page.graph.create_node("get_attr", name)
            page.keep(tensor, node, varies=False)
        return node

    def written(self, value: Any) -> Any:
        """Return an argument or a result with nodes in place of tensors."""
        if isinstance(value, Tensor):
            return self.node_of(value)
        if isinstance(value, list | tuple):
            return type(value)([self.written(each) for each in value])
        if isinstance(value, dict):
            return {name: self.written(each) for name, each in value.items()}
        return value


TRACER: ContextVar[_Tracer | None] = ContextVar("TRACER", default=None)
"""What writes operations down where that is going on."""


def _argument_types(operation: Any) -> list[str]:
    return [str(argument.type) for argument in schema(operation).arguments]
