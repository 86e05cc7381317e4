"""From a pure function to a plain tensor graph, compiled where that pays for itself."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor
import torch._inductor.config
from torch import Tensor
from torch.func import grad_and_value
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

__all__ = ["Lowered", "LoweringWarning", "Specialized", "looped_value_and_grad"]

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
    """

    def __init__(self, how: str, flat: Callable[..., Sequence[Tensor]], spec: pytree.TreeSpec) -> None:
        self.how, self.flat, self._spec = how, flat, spec

    def __call__(self, *args: Any) -> Any:
        """Evaluate with torch's autograd off."""
        with torch.no_grad():
            return pytree.tree_unflatten(list(self.flat(*_tensors(args))), self._spec)


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

    def specialize(self, *args: Any, num_calls: int = 1) -> Specialized:
        """Return the function lowered for the shapes and constants of ``args``.

        Parameters
        ----------
        *args
            Example arguments. Tensors stand for any values of the same shape; everything else is a constant.
        num_calls : int
            How often it is going to be called: decides whether compiling pays.
        """
        key = (num_calls > 1, *(_signature(leaf) for leaf in pytree.tree_leaves(args)))
        if key not in self._cache:
            self._cache[key] = _lower(self._function, self._fallback, args, num_calls)
        return self._cache[key]


def looped_value_and_grad(log_joint: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return ``(theta[C, P], *batch) -> ([C], [C, P])`` by a loop over chains, for models that cannot be batched."""

    def value_and_grad(theta: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        pairs = [_eager_value_and_grad(log_joint, row, batch) for row in theta]
        return torch.stack([value for value, _ in pairs]), torch.stack([gradient for _, gradient in pairs])

    return value_and_grad


def _eager_value_and_grad(log_joint: Callable[..., Tensor], theta: Tensor, batch: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        value = log_joint(leaf, *batch)
        (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def _lower(function: Callable[..., Any], fallback: Callable[..., Any], args: tuple[Any, ...], num_calls: int) -> Specialized:
    flat, spec_of = _flattened(function, args)
    inputs = [leaf.detach().clone() for leaf in _tensors(args)]
    try:
        graph, seconds = _trace(flat, inputs)
    except Exception as error:  # a model may fail to trace in any way; what it means is the same
        warnings.warn(_cannot_trace(error), LoweringWarning, stacklevel=4)
        flat, spec_of = _flattened(fallback, args)
        flat(*inputs)
        return Specialized("eager", flat, spec_of[0])
    if seconds * num_calls > COMPILE_SECONDS:
        compiled = _compile(graph, inputs)
        if compiled is not None:
            return Specialized("compiled", compiled, spec_of[0])
    return Specialized("traced", graph, spec_of[0])


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
    graph.recompile()
    seconds = _estimated_seconds(graph)
    for node in graph.graph.nodes:
        node.meta.clear()  # tensors of several tracing levels in the metadata make inductor refuse the graph
    return graph, seconds


def _tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent through the exponential, which CPUs vectorise; exact to an absolute rounding error."""
    return 1 - 2 / (torch.exp(2 * x) + 1)


def _compile(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]] | None:
    settings = {"cpp_wrapper": all(tensor.device.type == "cpu" for tensor in inputs)}
    try:
        with torch.no_grad(), torch._inductor.config.patch(settings):
            compiled: Callable[..., Sequence[Tensor]] = torch._inductor.compile(graph, inputs)
            compiled(*inputs)
    except Exception as error:  # no compiler on the machine, or an operation inductor does not know
        warnings.warn(_cannot_compile(error), LoweringWarning, stacklevel=5)
        return None
    return compiled


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
