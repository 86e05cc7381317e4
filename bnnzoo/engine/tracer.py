"""Writing down the operations of a function as it runs, as a graph."""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils.weak import WeakTensorKeyDictionary

from bnnzoo.engine.failures import Unfailing
from bnnzoo.engine.torch_private import DispatchMode, can_decompose, graph_module, require_graphs, schema

__all__ = ["operations_of"]

LIFTS = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}

SMALL = 4096
"""Entries up to which a tensor stands for itself in the metadata; of a larger one only shape and type are kept."""


def operations_of(
    flat: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    decompositions: Mapping[Any, Callable[..., Any]],
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

    Raises
    ------
    RuntimeError
        If the function asks for the value of a tensor that depends on its inputs or on random numbers.

    Examples
    --------
    >>> graph = operations_of(lambda x: (x.exp() + 1,), [torch.zeros(2)], {})
    >>> [node.name for node in graph.graph.nodes if node.op == "call_function"], graph(torch.zeros(2))[0].tolist()
    (['exp_default', 'add_tensor'], [2.0, 2.0])
    """
    require_graphs()
    tracer = _Tracer(decompositions)
    for i, tensor in enumerate(inputs):
        tracer.keep(tensor, tracer.graph.placeholder(f"input{i}"))
    with tracer:
        outputs = flat(*inputs)
    tracer.graph.output(tracer.written(tuple(outputs)))
    return graph_module(tracer.constants, tracer.graph)


class _Known(NamedTuple):
    """What does not change about an operation, looked up once."""

    is_composite: bool
    is_random: bool
    asks_for_value: bool
    changes_shape: bool


@cache
def _known_of(func: Any) -> _Known:
    tags = (torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.inplace_view)
    return _Known(can_decompose(func), *(tag in func.tags for tag in tags))


class _Tracer(DispatchMode):
    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.graph, self.constants = Graph(), torch.nn.Module()
        self._decompositions = decompositions
        # the graph does not depend on the values of tensors, so that it does not matter whether anything fails at these
        self._run = Unfailing()
        self._kept: dict[int, tuple[Tensor, Node]] = {}
        self._large: Any = WeakTensorKeyDictionary()
        self._varying: set[Node] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
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
        target = self._as_view(func, args[0]) if known.changes_shape else func
        node = self.graph.call_function(target, new_args, new_kwargs)
        varies = known.is_random or not self._varying.isdisjoint(node.all_input_nodes)
        if known.asks_for_value:
            self.graph.erase_node(node)  # a caller that can do without the value may go on
            if varies:
                raise RuntimeError(f"The value of a tensor that depends on the inputs is asked for ({func}).")
            return func(*args, **kwargs)
        result = self._run(func, args, kwargs)
        self._keep_all(result, node, varies)
        return result

    def _as_view(self, func: Any, tensor: Tensor) -> Any:
        """Return the operation that gives a view of the shape which ``func`` is about to give the tensor itself."""
        self.node_of(tensor).meta["val"] = tensor.detach()
        of = getattr(torch.ops.aten, schema(func).name.removeprefix("aten::").removesuffix("_"))
        found = (getattr(of, name) for name in of.overloads())
        return next(each for each in found if _argument_types(each) == _argument_types(func))

    def _keep_all(self, result: Any, node: Node, varies: bool) -> None:
        if isinstance(result, Tensor):
            self.keep(result, node, varies)
        elif isinstance(result, tuple | list):
            for i, each in enumerate(result):
                if isinstance(each, Tensor):
                    self.keep(each, self.graph.call_function(operator.getitem, (node, i)), varies)

    def keep(self, tensor: Tensor, node: Node, varies: bool = True) -> None:
        """Remember which node a tensor comes from, and whether its values may differ the next time."""
        if varies:
            self._varying.add(node)
        if tensor.numel() <= SMALL:
            self._kept[id(tensor)] = (tensor, node)
            node.meta["val"] = tensor
        else:
            self._large[tensor] = node
            node.meta["val"] = _described(tensor)
        node.meta["device"] = tensor.device

    def node_of(self, tensor: Tensor, value: Tensor | None = None) -> Node:
        """Return where a tensor comes from: one that no operation has made is a constant, of its own or another value."""
        kept = self._kept.get(id(tensor))  # which holds the tensor, so that no other one has its number
        node: Node | None = kept[1] if kept else self._large.get(tensor)
        if node is None:
            name = f"constant{len(self.graph.nodes)}"
            self.constants.register_buffer(name, tensor if value is None else value)
            node = self.graph.create_node("get_attr", name)
            self.keep(tensor, node, varies=False)
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


def _described(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _argument_types(operation: Any) -> list[str]:
    return [str(argument.type) for argument in schema(operation).arguments]
