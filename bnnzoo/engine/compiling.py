"""Compiling a graph with inductor, or warning once why that failed.

``tests/engine/test_lowered.py`` fails if a compiled graph is no longer called directly.
"""

import copy
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from bnnzoo.engine.cpp import toolchain
from bnnzoo.engine.cpp.toolchain import NoCompiler
from bnnzoo.engine.fallbacks import lacks_compiler, warn_without_compiler
from bnnzoo.engine.files import cache_folder, is_private
from bnnzoo.engine.reports import EngineLog, first_line, preparing
from bnnzoo.engine.simplify import drop_unused, number_throughout
from bnnzoo.engine.torch_private import (
    LoweringWarning,
    Missing,
    fake_tensors,
    from_pointers,
    inductor,
    to_pointers,
    tracing,
)

__all__ = [
    "compile_graph",
    "compile_loops",
    "for_compiling",
    "has_compiler",
    "torchs_random_numbers",
]

aten = torch.ops.aten


@preparing("compiling")
def compile_graph(
    graph: GraphModule, inputs: list[Tensor], log: EngineLog | None = None
) -> Callable[..., Sequence[Tensor]] | None:
    """Compile a graph and return what inductor made of it, without the layers of bookkeeping around each call."""
    log = log or EngineLog()
    on_cpu = all(tensor.device.type == "cpu" for tensor in inputs)
    if on_cpu and not has_compiler(log):
        warn_without_compiler("A model runs", log.report().reasons, stacklevel=4)
        return None
    found: list[Any] = []

    def remember(*args: Any, **kwargs: Any) -> Any:
        found.append(inductor().compile_fx_inner(*args, **kwargs))
        return found[-1]

    try:
        settings = {"cpp_wrapper": on_cpu, **_kept_to_own_folder()}
        # of the two caches on disk the outer one returns its wrappers only and never calls inner_compile
        inner_cache_only = inductor().autograd_config.patch(enable_autograd_cache=False)
        graph = copy.deepcopy(graph)
        _write_numbers(graph)
        if on_cpu:
            _expand_tanh(graph)
        mode = fake_tensors(static=True)
        patched = inductor().config.patch(settings)
        with log.timed("compiling"), torch.no_grad(), patched, inner_cache_only, tracing(mode), _quiet():
            wrapped: Any = inductor().compile_fx(graph, inputs, inner_compile=remember)
            expected = wrapped(*inputs)
            return _without_wrappers(wrapped, found, inputs, expected)
    except Exception as error:  # such as an operation inductor does not know
        log.refused("torch's compiler", error)
        warnings.warn(_cannot_compile(error), LoweringWarning, stacklevel=4)
        return None


@preparing("compiling")
def compile_loops(graph: GraphModule, log: EngineLog) -> Callable[..., Any] | None:
    """Compile a graph with loops inside, which changes its arguments, into one C++ function of the same arguments.

    Temporaries lie on the stack, and the function computes on the thread that calls it.
    """
    # what is allocated costs more than what is computed; buffers on the stack are not reused for one another
    on_stack = {"aot_inductor.allow_stack_allocation": True, "allow_buffer_reuse": False}
    # a loop is a function of the graphs in it, which are part of what the cache on disk goes by
    cached = {"unsafe_marked_cacheable_functions": {"torch.ops.higher_order.while_loop": torch.__version__}}
    settings = {"cpp_wrapper": True, "cpp.threads": 1, "cpp_wrapper_build_separate": True, **on_stack, **cached}
    fakes = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    try:
        settings |= _kept_to_own_folder()
        for module in graph.modules():
            if isinstance(module, GraphModule):
                _expand_tanh(module)
        with torch.no_grad(), inductor().config.patch(settings), tracing(fakes[0].fake_mode), _quiet():
            found: Any = inductor().compile_fx_inner(graph, fakes, cpp_wrapper=True)
        entry = _entry(found.current_callable, [])
    except Exception as error:
        log.refused("torch's compiler", error)
        warnings.warn(_cannot_compile(error), LoweringWarning, stacklevel=4)
        return None
    if entry is None:
        log.refused("torch's compiler", "its code cannot be called directly")
    return entry


def has_compiler(log: EngineLog) -> bool:
    """Tell whether torch's compiler would find the one that it calls, before it is imported.

    ``log`` takes down why not, unless native code has failed for that already.
    """
    try:
        toolchain.compiler_of_torch()
    except NoCompiler as error:
        if not lacks_compiler(log.report().reasons):
            log.refused("torch's compiler", error)
        return False
    return True


def _kept_to_own_folder() -> dict[str, bool]:
    """Let inductor keep what it unpickles and runs where nobody else can write, and return settings that go with it.

    Its default is a folder for temporary files with a name that anyone can take first. A folder that the user chose stays.
    Headers compiled beforehand lie in the default folder all the same, and are used only if it is this user's.
    """
    default = inductor().default_cache_dir()
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR", default) == default:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))
    with suppress(OSError):
        Path(default).mkdir(mode=0o700)
    return {"cpp_cache_precompile_headers": is_private(Path(default))}


def for_compiling(graph: GraphModule) -> None:
    """Write the constants of a traced graph, in place, as compilers like them best."""
    _write_numbers(graph)


@contextmanager
def torchs_random_numbers() -> Iterator[None]:
    """Let graphs compiled here draw the random numbers that torch draws uncompiled, rather than inductor's own."""
    with inductor().config.patch(fallback_random=True):
        yield


def _without_wrappers(
    wrapped: Callable[..., Sequence[Tensor]], found: list[Any], inputs: list[Tensor], expected: Sequence[Tensor]
) -> Callable[..., Sequence[Tensor]]:
    """Return the innermost compiled function if it provably does all the work, else ``wrapped``.

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
    lean = _entry(inner, constants) or (lambda *tensors: inner([*constants, *tensors]))
    outputs = lean(*inputs)
    if len(outputs) != len(expected) or not all(map(_same, outputs, expected)):
        return lambda *tensors: wrapped(*tensors)
    return lean


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _entry(inner: Callable[..., Any], constants: list[Any]) -> Callable[..., Sequence[Tensor]] | None:
    """Return the C++ function inside ``inner`` as a function of the inputs, None if inductor wraps it in another way.

    Its wrapper loops over the arguments in Python, which takes a tenth of the time of a small graph.
    """
    cells = inspect.getclosurevars(inner).nonlocals if inspect.isfunction(inner) and inner.__name__ == "g" else {}
    if cells.keys() != {"f"}:
        return None
    entry = cells["f"]
    try:
        give, take = to_pointers(), from_pointers()
    except Missing:
        return None
    return lambda *tensors: take(entry(give([*constants, *tensors])))


def _write_numbers(graph: GraphModule) -> None:
    """Replace constants whose entries are all equal by that number, in place, so that no call has to pass them."""
    for node in [node for node in graph.graph.nodes if node.op == "get_attr"]:
        value = getattr(graph, node.target)
        number = number_throughout(value)
        if number is not None:
            with graph.graph.inserting_before(node):
                options = {"dtype": value.dtype, "device": value.device}
                full = graph.graph.call_function(aten.full.default, (list(value.shape), number.item()), options)
            node.replace_all_uses_with(full)
            graph.graph.erase_node(node)
    drop_unused(graph)
    graph.recompile()


def _expand_tanh(graph: GraphModule) -> None:
    """Write hyperbolic tangents as ``1 - 2 / (exp(2 x) + 1)``, in place; exact to an absolute rounding error.

    Compilers vectorise the exponential. Uncompiled, one operation is faster than five.
    """
    for node in list(graph.graph.nodes):
        if node.target is aten.tanh.default:
            with graph.graph.inserting_before(node):
                new = partial(_like, graph, node)
                power = new(aten.exp.default, (new(aten.mul.Tensor, (node.args[0], 2)),))
                share = new(aten.reciprocal.default, (new(aten.add.Tensor, (power, 1)),))
                value = new(aten.add.Tensor, (new(aten.mul.Tensor, (share, -2)), 1))
            node.replace_all_uses_with(value)
            graph.graph.erase_node(node)
    graph.recompile()


def _like(graph: GraphModule, node: Node, target: Any, args: tuple[Any, ...]) -> Node:
    """Add an operation whose result has the shape and type of another's."""
    new = graph.graph.call_function(target, args)
    new.meta.update(node.meta)
    return new


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence inductor's messages about its own internals; errors are still raised."""
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


def _cannot_compile(error: Exception) -> str:
    return f"The traced graph could not be compiled and runs uncompiled, several times slower ({first_line(error)})."
