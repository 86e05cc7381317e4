"""From a pure function to a plain tensor graph, compiled where that pays for itself."""

import copy
import logging
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch._inductor.config
from torch import Tensor
from torch._functorch.compile_utils import fx_graph_cse
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

__all__ = ["LoopStep", "Lowered", "LoweringWarning", "Packed", "Specialized", "looped_value_and_grad"]

COMPILE_SECONDS = 12.0
"""What inductor is taken to need for a graph it has not seen; measured 3 to 20 s."""

SECONDS_PER_NODE = 4e-6
SECONDS_PER_ELEMENT = 1e-9
"""Rough cost of a traced graph on a CPU, so that the choice to compile never depends on a clock."""


class LoweringWarning(UserWarning):
    """A function runs, but slower than it could: it could not be compiled or not even be traced."""


class Specialized:
    """A function lowered for fixed shapes; call it with the arguments it was lowered for, or with other values of them.

    Attributes
    ----------
    how : {"compiled", "traced", "eager"}
        How it runs: through inductor, as a tensor graph, or as the Python function itself.
    flat : callable
        The same on flat lists of tensors, for loops in which flattening would cost: ``(*tensors) -> sequence of tensors``.
    worth_compiling_after : float
        Number of calls after which compiling pays; infinite where nothing is left to compile.
    """

    def __init__(
        self,
        how: str,
        flat: Callable[..., Sequence[Tensor]],
        spec: pytree.TreeSpec,
        worth_compiling_after: float = math.inf,
    ) -> None:
        self.how, self.flat, self._spec, self.worth_compiling_after = how, flat, spec, worth_compiling_after

    def __call__(self, *args: Any) -> Any:
        """Evaluate with torch's autograd off."""
        with torch.no_grad():
            return pytree.tree_unflatten(list(self.flat(*_tensors(args))), self._spec)

    def compiled(self, inputs: list[Tensor]) -> "Specialized":
        """Return the compiled form of a traced graph, or the graph as it is where it cannot be compiled."""
        assert isinstance(self.flat, GraphModule)
        function = _compile(self.flat, inputs)
        how, function = ("traced", self.flat) if function is None else ("compiled", function)
        return Specialized(how, function, self._spec)


class Lowered:
    """A pure function that is traced, and if need be compiled, once for each combination of static shapes.

    Parameters
    ----------
    function : callable
        Pure function of tensors, pytrees of tensors, and constants such as numbers and None.
    fallback : callable, optional
        What to run where ``function`` cannot be traced.

    Examples
    --------
    >>> import torch
    >>> square = Lowered(lambda x: {"y": x * x})
    >>> square(torch.tensor([1.0, 3.0]))["y"].tolist()
    [1.0, 9.0]
    """

    def __init__(self, function: Callable[..., Any], fallback: Callable[..., Any] | None = None) -> None:
        self._function = function
        self._fallback = fallback or function
        self._cache: dict[tuple[Any, ...], Specialized] = {}

    def __call__(self, *args: Any) -> Any:
        """Evaluate through the graph for these shapes, tracing it if there is none yet."""
        return self.specialize(*args)(*args)

    def specialize(self, *args: Any, num_calls: float = 1) -> Specialized:
        """Return the function lowered for the shapes and constants of ``args``.

        A loop of unknown length asks again now and then with the number of calls so far: it then spends on compiling at
        most about what it has spent on running.

        Parameters
        ----------
        *args
            Example arguments. Tensors stand for any values of the same shape; everything else is a constant.
        num_calls : float
            How often it is going to be, or has been, called: decides whether compiling pays.
        """
        key = tuple(_signature(leaf) for leaf in pytree.tree_leaves(args))
        if key not in self._cache:
            self._cache[key] = _lower(self._function, self._fallback, args)
        found = self._cache[key]
        if num_calls > found.worth_compiling_after:
            self._cache[key] = found = found.compiled(_clones(args))
        return found


class Packed:
    """A pytree of tensors kept as few tensors: leaves of one shape and dtype are stacked.

    A compiled graph pays for every tensor that passes its border, so the state of a loop crosses it packed.

    Examples
    --------
    >>> import torch
    >>> packed = Packed({"a": torch.zeros(3), "b": torch.ones(3), "n": torch.tensor(2)})
    >>> len(packed.groups), packed.value["b"].tolist()
    (2, [1.0, 1.0, 1.0])
    """

    def __init__(self, value: Any) -> None:
        leaves, spec = pytree.tree_flatten(value)
        kinds = [(leaf.shape, leaf.dtype) for leaf in leaves]
        members = [[i for i, k in enumerate(kinds) if k == kind] for kind in dict.fromkeys(kinds)]
        self.groups = [torch.stack([leaves[i] for i in group]) for group in members]
        self.layout = (spec, members)

    @property
    def value(self) -> Any:
        """The tree itself, as views of the packed tensors."""
        spec, members = self.layout
        leaves: dict[int, Tensor] = {}
        for group, places in zip(self.groups, members, strict=True):
            leaves.update(zip(places, group.unbind(), strict=True))
        return pytree.tree_unflatten([leaves[i] for i in range(len(leaves))], spec)

    def with_groups(self, groups: Sequence[Tensor]) -> "Packed":
        """Return a tree of the same structure that holds other tensors."""
        return _unflatten_packed(groups, self.layout)


def _unflatten_packed(groups: Iterable[Tensor], layout: Any) -> Packed:
    packed = Packed.__new__(Packed)
    packed.groups, packed.layout = list(groups), layout
    return packed


pytree.register_pytree_node(Packed, lambda packed: (packed.groups, packed.layout), _unflatten_packed)


class LoopStep:
    """A function called over and over in a loop, on flat tensors; it compiles itself once it has run long enough.

    At most about as much time is spent on compiling as on running, whatever the loop's length, and the choice depends on
    the number of calls alone, so that a run can be repeated.

    Parameters
    ----------
    function : callable
        Pure function of pytrees of tensors.
    *args
        Example arguments.
    fallback : callable, optional
        What to run where ``function`` cannot be traced.
    """

    def __init__(self, function: Callable[..., Any], *args: Any, fallback: Callable[..., Any] | None = None) -> None:
        self._specialized = Lowered(function, fallback).specialize(*args)
        self._num_calls = 0

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Evaluate at the leaves of the arguments and return the leaves of the result."""
        self._num_calls += 1
        if self._num_calls > self._specialized.worth_compiling_after:
            self._specialized = self._specialized.compiled([tensor.clone() for tensor in tensors])
        return self._specialized.flat(*tensors)


def looped_value_and_grad(log_joint: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return ``(theta[C, P], *batch) -> ([C], [C, P])`` by a loop over chains, for models that cannot be batched."""

    def value_and_grad(theta: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        pairs = [_eager_value_and_grad(log_joint, row, batch) for row in theta]
        return torch.stack([value for value, _ in pairs]), torch.stack([gradient for _, gradient in pairs])

    return value_and_grad


def _eager_value_and_grad(
    log_joint: Callable[..., Tensor], theta: Tensor, batch: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        value = log_joint(leaf, *batch)
        (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def _lower(function: Callable[..., Any], fallback: Callable[..., Any], args: tuple[Any, ...]) -> Specialized:
    flat, spec_of = _flattened(function, args)
    inputs = _clones(args)
    try:
        graph, seconds = _trace(flat, inputs)
    except Exception as error:  # a model may fail to trace in any way; what it means is the same
        warnings.warn(_cannot_trace(error), LoweringWarning, stacklevel=4)
        flat, spec_of = _flattened(fallback, args)
        flat(*inputs)
        return Specialized("eager", flat, spec_of[0])
    return Specialized("traced", graph, spec_of[0], worth_compiling_after=COMPILE_SECONDS / seconds)


def _clones(args: Any) -> list[Tensor]:
    """Copy every tensor: tracing tells inputs apart by identity, and one passed twice would become one input."""
    return [leaf.detach().clone() for leaf in _tensors(args)]


def _flattened(
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


def _trace(flat: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor]) -> tuple[GraphModule, float]:
    decompositions = {torch.ops.aten.tanh.default: _tanh} if all(i.device.type == "cpu" for i in inputs) else {}
    graph = make_fx(flat, decomposition_table=decompositions)(*inputs)
    graph.graph.eliminate_dead_code()
    seconds = _estimated_seconds(graph)
    fold_constants(graph)
    graph.graph = fx_graph_cse(graph.graph)
    graph.recompile()
    for node in graph.graph.nodes:
        node.meta.clear()  # tensors of several tracing levels in the metadata make inductor refuse the graph
    return graph, seconds


def fold_constants(graph: GraphModule) -> None:
    """Evaluate once, in place, whatever in ``graph`` depends on no input: bounds, scales, factorisations of constants."""
    values: dict[Node, Any] = {}
    for node in list(graph.graph.nodes):
        if node.op == "get_attr":
            values[node] = getattr(graph, node.target)
        elif node.op == "call_function" and _is_constant(node, values):
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: values[n])
            values[node] = node.target(*args, **kwargs)
    folded = [node for node in values if node.op == "call_function"]
    for node in folded:
        if isinstance(values[node], Tensor) and any(user not in values for user in node.users):
            _replace_by_attribute(graph, node, values[node])
    for node in reversed(folded):  # some, such as checks of errors, are never dead code to the graph itself
        if not node.users:
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()


def _is_constant(node: Node, values: dict[Node, Any]) -> bool:
    """Tell whether a node can be evaluated now: it is pure, not random, and all it takes is known."""
    if isinstance(node.target, OpOverload):
        pure = torch.Tag.nondeterministic_seeded not in node.target.tags and not node.target._schema.is_mutable
    else:
        pure = node.target is operator.getitem
    return pure and all(argument in values for argument in node.all_input_nodes)


def _replace_by_attribute(graph: GraphModule, node: Node, value: Tensor) -> None:
    name = f"_folded_{node.name}"
    graph.register_buffer(name, value.detach().clone())
    with graph.graph.inserting_before(node):
        constant = graph.graph.get_attr(name)
    node.replace_all_uses_with(constant)


def _tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent through the exponential, which CPUs vectorise; exact to an absolute rounding error."""
    return 1 - 2 / (torch.exp(2 * x) + 1)


def _compile(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]] | None:
    """Compile a graph and return what inductor made of it, without the layers of bookkeeping around each call."""
    found: list[Any] = []

    def remember(*args: Any, **kwargs: Any) -> Any:
        found.append(compile_fx_inner(*args, **kwargs))
        return found[-1]

    settings = {"cpp_wrapper": all(tensor.device.type == "cpu" for tensor in inputs)}
    try:
        with torch.no_grad(), torch._inductor.config.patch(settings), _quiet():
            wrapped: Callable[..., Any] = cast(Any, compile_fx(copy.deepcopy(graph), inputs, inner_compile=remember))
            expected = wrapped(*inputs)
    except Exception as error:  # no compiler on the machine, or an operation inductor does not know
        warnings.warn(_cannot_compile(error), LoweringWarning, stacklevel=4)
        return None
    return _without_wrappers(wrapped, found, inputs, expected)


def _without_wrappers(
    wrapped: Callable[..., Sequence[Tensor]], found: list[Any], inputs: list[Tensor], expected: Sequence[Tensor]
) -> Callable[..., Sequence[Tensor]]:
    """Return the innermost compiled function where it is known to be all there is, else ``wrapped``.

    The graph's constants come first among its arguments, then the inputs; outputs that are views of inputs are left out.
    """
    if len(found) != 1:
        return lambda *tensors: wrapped(*tensors)
    seen: list[list[Any]] = []
    inner = found[0].current_callable

    def spy(args: list[Any]) -> Any:
        seen.append(list(args))
        return inner(args)

    found[0].current_callable = spy
    with torch.no_grad():
        wrapped(*inputs)
    found[0].current_callable = inner
    constants = seen[0][: len(seen[0]) - len(inputs)]
    passed = seen[0][len(constants) :]
    if len(passed) != len(inputs) or any(a is not b for a, b in zip(passed, inputs, strict=True)):
        return lambda *tensors: wrapped(*tensors)
    outputs = inner([*constants, *inputs])
    if len(outputs) != len(expected) or not all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True)):
        return lambda *tensors: wrapped(*tensors)
    return lambda *tensors: inner([*constants, *tensors])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep inductor's remarks about its own insides from the user; errors still raise."""
    loggers = [logging.getLogger(name) for name in ("torch._inductor", "torch.utils.cpp_extension")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _estimated_seconds(graph: GraphModule) -> float:
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    elements = sum(node.meta["val"].numel() for node in nodes if isinstance(node.meta.get("val"), Tensor))
    return len(nodes) * SECONDS_PER_NODE + elements * SECONDS_PER_ELEMENT


def _tensors(args: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)]


def _signature(leaf: Any) -> Any:
    return (leaf.shape, leaf.stride(), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else leaf


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


def _cannot_compile(error: Exception) -> str:
    return (
        f"The traced graph could not be compiled and runs uncompiled, several times slower ({_first_line(error)}). If no "
        f"C++ compiler is installed, install one (g++ or clang)."
    )


def _cannot_trace(error: Exception) -> str:
    return (
        f"The model could not be traced into a tensor graph and runs as Python, one chain after the other "
        f"({_first_line(error)}). Replace .item(), if-statements on tensor values and numpy calls by torch operations."
    )
