"""The runner of a program's copies: native code, a batch of traced graphs, or Python."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bnnzoo.engine.choose import Engine, OneByOneError
from bnnzoo.engine.chunks import NATIVE, compiled_or_none, inner_graph, kinds_of
from bnnzoo.engine.decisive import content_of
from bnnzoo.engine.fallbacks import lacks_compiler, warn_without_compiler
from bnnzoo.engine.fleet import BatchedCopies, NativeCopies, Runner, of_copy
from bnnzoo.engine.loops import Compiles
from bnnzoo.engine.lowered import flattened, tensors_of, untraced
from bnnzoo.engine.program import GradientFunction, Program
from bnnzoo.engine.reports import EngineLog
from bnnzoo.engine.torch_private import LoweringWarning

__all__ = ["native_copies", "runner"]


def runner(
    program: Program,
    gradient: GradientFunction,
    moving: Any,
    resting: Any,
    row: tuple[Tensor, ...],
    *,
    engine: Engine = "auto",
    native_pays: bool = True,
    max_flops: float = math.inf,
    num_steps: int = 0,
    num_cycles: int = 0,
    log: EngineLog | None = None,
    data: Sequence[tuple[Any, ...]] | None = None,
) -> Runner:
    """Return what runs copies of a program, by the engine asked for or by the one that pays.

    Parameters
    ----------
    program, gradient, moving, resting, row
        As in :class:`bnnzoo.engine.fleet.NativeCopies`.
    engine : {"auto", "native", "graph", "python"}
    native_pays : bool
        Whether "auto" should try native code.
    max_flops : float
        Multiplications and additions of a gradient up to which "auto" takes native code: larger ones share them among cores.
    num_steps, num_cycles : int
        As in :class:`bnnzoo.engine.fleet.BatchedCopies`.
    log : EngineLog, optional
        Takes down which engine runs, and why.
    data : sequence of tuple, optional
        Those of each copy, which native code alone can take.

    Raises
    ------
    OneByOneError
        If copies have data of their own and cannot run in native code.

    Warns
    -----
    LoweringWarning
        If native code was asked for, and the program cannot be compiled here; or there is no compiler.
    """
    log = log or EngineLog()
    if engine == "native" or (engine == "auto" and native_pays):
        most = math.inf if engine == "native" else max_flops
        found = native_copies(program, gradient, moving, resting, row, max_flops=most, log=log, data=data)
        if found is not None:
            return found
        reasons = log.report().reasons
        if lacks_compiler(reasons):
            warn_without_compiler(
                "engine='native' runs" if engine == "native" else "The fit runs", reasons, stacklevel=3
            )
        elif engine == "native":
            why = "; ".join(reasons) or "it cannot be compiled here"
            warnings.warn(f"engine='native' runs as traced graphs instead: {why}.", LoweringWarning, stacklevel=3)
    if data is not None:
        raise OneByOneError("Copies with data of their own run in native code only.")
    with untraced(engine == "python"):
        return BatchedCopies(program, gradient, moving, resting, num_steps, num_cycles, log=log)


def native_copies(
    program: Program,
    gradient: GradientFunction,
    moving: Any,
    resting: Any,
    row: tuple[Tensor, ...] = (),
    *,
    max_flops: float = math.inf,
    counts_flops: bool = False,
    compiles: Compiles = True,
    num_threads: int | None = None,
    log: EngineLog | None = None,
    data: Sequence[tuple[Any, ...]] | None = None,
) -> NativeCopies | None:
    """Return copies in native code, or None where they cannot be compiled: graphs run from Python would be slower.

    Arguments are those of :func:`runner` and :class:`bnnzoo.engine.fleet.NativeCopies`. With ``counts_flops`` the operations of
    a gradient are counted whatever ``max_flops``; ``log`` takes down why they cannot be compiled.
    """
    log = log or EngineLog()
    theta, inputs, _ = program.point(of_copy(moving, 0), program.held(of_copy(resting, 0)))
    args = theta, *inputs, *gradient.data
    flat, _ = flattened(gradient.single, args)
    tensors, counts = tensors_of(args), counts_flops or max_flops < math.inf
    inner = gradient.shared(
        ("gradient", kinds_of(tensors), counts), lambda: inner_graph(flat, tensors, counts_flops=counts, log=log)
    )
    if inner is None:
        return None
    held = [content_of(each) for each in tensors_of(gradient.data)]
    if any([content_of(each) for each in tensors_of(own)] != held for own in data or ()):
        raise OneByOneError("The graph of copies holds data by which the model decides, and theirs differ.")
    if inner.flops > max_flops:
        log.refused(NATIVE, f"a gradient takes {inner.flops} operations, which torch shares among cores")
        return None
    return compiled_or_none(
        inner,
        lambda found: NativeCopies(program, gradient, moving, resting, found, row, num_threads, compiles, log, data),
        log,
    )
