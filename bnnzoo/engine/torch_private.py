"""Private parts of torch, fetched by name so that the package runs, as Python, on a release that lacks them.

No other module names a private part of torch. What is cheap to import is fetched here once; parts of torch's compiler are
fetched when they are first needed, since they take longer to import than many fits.
"""

import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode as _TorchDispatchMode

__all__ = [
    "COMPILER",
    "COMPILING_AUTOGRAD",
    "DYNAMO",
    "GRAPHS",
    "LAZY_GRAPHS",
    "LOOPS",
    "TRANSFORMS",
    "WHILE_LOOP",
    "DispatchMode",
    "Inductor",
    "LoweringWarning",
    "Missing",
    "OpOverload",
    "angles_drawn_by",
    "batchable_dirichlet",
    "can_decompose",
    "core_decompositions",
    "decompositions",
    "draws_from_gamma",
    "fake_tensors",
    "from_pointers",
    "graph_module",
    "ignore_slow_batching",
    "inductor",
    "is_tracing_loops",
    "known_random_operations",
    "make_fx",
    "overload_name",
    "require_graphs",
    "require_loops",
    "schema",
    "to_pointers",
    "tracing",
    "untransformed",
    "version_of",
    "written_when_called",
]


DYNAMO, COMPILING_AUTOGRAD = "torch._dynamo", "torch._dynamo.compiled_autograd"


class LoweringWarning(UserWarning):
    """A function runs, but slower than it could: it could not be compiled or not even be traced."""


class Missing(ImportError):
    """The installed torch lacks private parts without which a function runs as Python, or uncompiled."""


GRAPHS = (
    "torch.utils._python_dispatch:TorchDispatchMode",
    "torch:ops.aten.add.Tensor._schema",
    "torch:ops.aten.add.Tensor._overloadname",
    "torch:ops.aten.add.Tensor._can_decompose",
)
"""What tracing needs."""

LOOPS = (
    "torch._guards:TracingContext",
    "torch._guards:tracing",
    "torch._subclasses:FakeTensorMode",
    "torch.fx.experimental.proxy_tensor:make_fx",
    "torch.fx.experimental.proxy_tensor:get_proxy_mode",
    "torch:ops.higher_order.while_loop",
    "torch._decomp:_core_aten_decompositions_post_autograd",
    "torch._decomp:get_decompositions",
)
"""What loops in native code need besides."""

LAZY_GRAPHS = (
    "torch.fx._lazy_graph_module:_make_graph_module",
    "torch.fx._lazy_graph_module:_use_lazy_graph_module",
)
"""What saves time only."""

TRANSFORMS = (
    "torch._functorch.pyfunctorch:temporarily_clear_interpreter_stack",
    "torch.distributions.dirichlet:_Dirichlet",
    "torch:_standard_gamma",
    "torch.distributions.von_mises:_rejection_sample",
)
"""What predictions inside a model that is batched or differentiated need, and draws of many copies."""

COMPILER = (
    "torch._inductor:config",
    "torch._functorch:config",
    "torch._inductor.compile_fx:compile_fx",
    "torch._inductor.compile_fx:compile_fx_inner",
    "torch._inductor.runtime.cache_dir_utils:default_cache_dir",
    "torch._inductor.decomposition:select_decomp_table",
    "torch._functorch.compile_utils:rand_ops",
    "torch.fx.experimental.symbolic_shapes:ShapeEnv",
    "torch:_C._aoti.unsafe_alloc_void_ptrs_from_tensors",
    "torch:_C._aoti.alloc_tensors_by_stealing_from_void_ptrs",
)
"""What is fetched when it is needed."""

*_INDUCTOR, _DECOMPOSITIONS, _RANDOM, _SHAPE_ENV, _TO_POINTERS, _FROM_POINTERS = COMPILER

_GONE: dict[str, None] = {}


def _fetched(name: str) -> Any:
    """Return a part of torch, None if there is none. Some releases import parts of their own that they deprecate."""
    module, _, path = name.partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return operator.attrgetter(path)(import_module(module))
    except (ImportError, AttributeError):
        _GONE[name] = None
        return None


def _needed(name: str) -> Any:
    """Return a part of torch's compiler; the first time that it is missed a warning says so."""
    known = name in _GONE
    found = _fetched(name)
    if found is None:
        if not known:
            _warn([name])
        raise Missing(_lacks([name]))
    return found


def _lacks(names: list[str]) -> str:
    return f"torch {torch.__version__} has no {' and no '.join(name.replace(':', '.') for name in names)}"


def _warn(names: list[str]) -> None:
    message = (
        f"{_lacks(names)}, so that models run as Python or uncompiled, many times slower. Install a release of torch "
        "that this release of bnnzoo was tested with (see its pyproject.toml), or a newer bnnzoo."
    )
    warnings.warn(message, LoweringWarning, stacklevel=3)


def _require(names: tuple[str, ...]) -> None:
    if gone := [name for name in names if name in _GONE]:
        raise Missing(_lacks(gone))


def require_graphs() -> None:
    """Raise an error where functions cannot be traced.

    Raises
    ------
    Missing
        Naming what torch lacks.
    """
    _require(GRAPHS)


def require_loops() -> None:
    """Raise an error where loops cannot be traced.

    Raises
    ------
    Missing
        Naming what torch lacks.
    """
    _require((*GRAPHS, *LOOPS))


_FOUND = {name: _fetched(name) for name in (*GRAPHS, *LOOPS, *LAZY_GRAPHS, *TRANSFORMS)}
_TRACING_CONTEXT, _TRACING, _FAKE_MODE, _MAKE_FX, _PROXY_MODE, *_OF_LOOPS = (_FOUND[name] for name in LOOPS)
_WHILE_LOOP, _CORE, _REGISTERED = _OF_LOOPS
_MAKE_GRAPH_MODULE, _LAZY_GRAPH_MODULE = (_FOUND[name] for name in LAZY_GRAPHS)

OpOverload: Any = type(torch.ops.aten.add.Tensor)
"""The class of a single operation, such as ``torch.ops.aten.add.Tensor``."""

WHILE_LOOP: Any = _WHILE_LOOP or object()
"""The operation that a traced loop is."""


class _NoMode:
    """Stands in for a mode where torch has none: every operation is torch's own."""

    def __enter__(self) -> "_NoMode":
        return self

    def __exit__(self, *error: object) -> None:
        pass


if not TYPE_CHECKING:
    _TorchDispatchMode = _FOUND[GRAPHS[0]] or _NoMode


class DispatchMode(_TorchDispatchMode):
    """A mode in which every operation passes through ``__torch_dispatch__``, without torch's compiler.

    To keep its compiler out of the code of a mode, torch imports it at the first operation, which takes more than a second.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return DYNAMO in sys.modules


def schema(operation: Any) -> Any:
    """Return the schema of an operation: its arguments, results, name, and whether it writes."""
    return operation._schema


def overload_name(operation: Any) -> str:
    """Return the name of an operation among those of its kind."""
    return str(operation._overloadname)


def can_decompose(operation: Any) -> bool:
    """Tell whether torch writes an operation with others."""
    return bool(operation._can_decompose())


def version_of(tensor: Tensor) -> object:
    """Return what changes whenever a tensor is written into."""
    return getattr(tensor, "_version", object())


def graph_module(root: Any, graph: Graph) -> GraphModule:
    """Return a graph as a module, which becomes Python code when it is first called where torch can do that."""
    found: GraphModule = (_MAKE_GRAPH_MODULE or GraphModule)(root, graph)
    return found


def written_when_called() -> AbstractContextManager[Any]:
    """Let graphs made here become Python code when they are first called, rather than after each change."""
    found: AbstractContextManager[Any] = _LAZY_GRAPH_MODULE(True) if _LAZY_GRAPH_MODULE else nullcontext()
    return found


def untransformed() -> AbstractContextManager[Any]:
    """Compute outside of the transformations of torch.func that are going on, such as vmap, where torch can leave them."""
    leave = _FOUND[TRANSFORMS[0]]
    found: AbstractContextManager[Any] = leave() if leave else nullcontext()
    return found


@contextmanager
def batchable_dirichlet() -> Iterator[None]:
    """Let Dirichlet and Beta distributions draw by an operation that vmap knows, where no gradient is asked of the draw."""
    with_gradient = _FOUND[TRANSFORMS[1]]

    def apply(concentration: Tensor) -> Tensor:
        needs_gradient = torch.is_grad_enabled() and concentration.requires_grad
        draw = with_gradient.apply if needs_gradient else torch.ops.aten._sample_dirichlet
        found: Tensor = draw(concentration)
        return found.masked_fill(concentration.isnan().any(-1, keepdim=True), torch.nan)  # torch draws equal parts

    with _replaced(TRANSFORMS[1], SimpleNamespace(apply=apply)):
        yield


def angles_drawn_by(draw: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> AbstractContextManager[None]:
    """Let von Mises distributions draw by a function of location, concentration, a constant of theirs, and an empty result."""
    return _replaced(TRANSFORMS[3], draw)


@contextmanager
def _replaced(name: str, substitute: Any) -> Iterator[None]:
    """Let another function or class be a private part of torch, unless the installed torch has none.

    Where contexts of two threads overlap, the first to end restores torch's own, which vmap then refuses in the other.
    """
    own = _FOUND[name]
    if own is None:
        yield
        return
    module, _, path = name.partition(":")
    setattr(import_module(module), path, substitute)
    try:
        yield
    finally:
        setattr(import_module(module), path, own)


def draws_from_gamma(func: Any) -> bool:
    """Tell whether a function is the one by which torch draws from gamma distributions."""
    return func is _FOUND[TRANSFORMS[2]]


def ignore_slow_batching() -> None:
    """Leave out, within :func:`warnings.catch_warnings`, that vmap computes an operation one by one."""
    warnings.filterwarnings("ignore", message="There is a performance drop")


def fake_tensors(*, static: bool = False) -> Any:
    """Return a mode of tensors without values, on request one that compiles for shapes that are numbers."""
    require_loops()
    return _FAKE_MODE(shape_env=_needed(_SHAPE_ENV)(), static_shapes=True) if static else _FAKE_MODE()


def tracing(mode: Any) -> AbstractContextManager[Any]:
    """Let torch's compiler know the mode of the tensors that are traced."""
    require_loops()
    found: AbstractContextManager[Any] = _TRACING(_TRACING_CONTEXT(mode))
    return found


def make_fx(function: Callable[..., Any], table: Mapping[Any, Callable[..., Any]]) -> Callable[..., GraphModule]:
    """Return the function of example arguments that gives the graph of a function, in operations left by a table."""
    require_loops()
    found: Callable[..., GraphModule] = _MAKE_FX(function, decomposition_table=table)
    return found


def is_tracing_loops() -> bool:
    """Tell whether a function is being traced by :func:`make_fx`."""
    return _PROXY_MODE is not None and _PROXY_MODE() is not None


class Inductor(NamedTuple):
    """Parts of torch's compiler of graphs."""

    config: Any
    autograd_config: Any
    compile_fx: Callable[..., Any]
    compile_fx_inner: Callable[..., Any]
    default_cache_dir: Callable[[], str]


@cache
def inductor() -> Inductor:
    """Return torch's compiler of graphs.

    Raises
    ------
    Missing
        Naming the part that torch lacks.
    """
    return Inductor(*(_needed(name) for name in _INDUCTOR))


def core_decompositions(more: Sequence[Any]) -> Mapping[Any, Callable[..., Any]]:
    """Return how torch writes operations, its usual choice and more, with others; its compiler need not be imported for them."""
    require_loops()
    return {**_CORE(), **_REGISTERED(more)}


def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Return how operations that torch's compiler does not know are written with those that it does."""
    found: Mapping[Any, Callable[..., Any]] = _needed(_DECOMPOSITIONS)()
    return found


def known_random_operations() -> frozenset[Any]:
    """Return the operations that torch's optimisers of graphs know to be random, and neither merge nor reorder."""
    return frozenset(_needed(_RANDOM))


def to_pointers() -> Callable[[list[Tensor]], Any]:
    """Return the function that hands tensors to compiled code."""
    found: Callable[[list[Tensor]], Any] = _needed(_TO_POINTERS)
    return found


def from_pointers() -> Callable[[Any], list[Tensor]]:
    """Return the function that takes tensors over from compiled code."""
    found: Callable[[Any], list[Tensor]] = _needed(_FROM_POINTERS)
    return found


if _GONE:
    _warn(list(_GONE))
