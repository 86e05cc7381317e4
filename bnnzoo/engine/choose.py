"""The choice of engine: native code, a batch of traced graphs, or Python, and what each has to repay."""

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch import Tensor

from bnnzoo.engine.chunks import NATIVE, compiled_or_none, inner_graph, kinds_of
from bnnzoo.engine.decisive import content_of
from bnnzoo.engine.fleet import BatchedCopies, NativeCopies, Runner, of_copy
from bnnzoo.engine.lowered import flattened, tensors_of, untraced
from bnnzoo.engine.program import GradientFunction, Program
from bnnzoo.engine.reports import EngineLog
from bnnzoo.engine.torch_private import LoweringWarning

__all__ = ["NATIVE_PAYS_FROM", "Engine", "OneByOneError", "asked_for", "runner"]

type Engine = Literal["auto", "native", "graph", "python"]

NATIVE_PAYS_FROM = 400
"""Expected steps of a chain, or of a training, from which native code pays.

To trace and compile takes 1.6 to 3.3 s of processor time, once for a model; a step in native code takes 0.5 us a chain of a
regression of 6 parameters, and 36 us a network of 452. A batch costs 0.3 ms a step and more, besides what each draw costs, and
torch's compiler, from some length on, 4 s to 20. Processor seconds of a first fit and of a second, native and in a batch: NUTS
of four parameters, 4 chains, 30 + 30 draws, 2.2 and 0.2 against 5.7 and 2.5, 125 + 125 draws 2.0 and 0.3 against 25 and 6.5;
eight schools, 60 + 60, 2.4 and 0.3 against 6.9 and 5.8; a network of 61 parameters, 10 + 10, 2.1 and 0.6 against 20 and 8.3;
MAMS, 60 + 60, 2.8 and 0.5 against 2.9 and 1.0; SGHMC, 300 draws, 2.8 and 0.4 against 12 and 3.9. Training of ten parameters: MAP,
1,000 steps, 2.5 and 0.2 against 2.7 and 1.1; MeanFieldVI, 3.9 and 1.0 against 4.1 and 2.8; DeepEnsemble, 2.3 and 0.3 against
2.7 and 1.5.
"""

VARIABLE = "BNNZOO_ENGINE"
"""Environment variable that chooses the engine of scripts that leave the choice open."""


class OneByOneError(Exception):
    """Fits that cannot run together, and have to be made one by one."""


def asked_for(engine: str) -> Engine:
    """Return the engine asked for by an argument or, where that leaves the choice open, by the environment.

    Raises
    ------
    ValueError
        If there is no such engine.

    Examples
    --------
    >>> asked_for("graph")
    'graph'
    """
    names = get_args(Engine.__value__)
    where, found = "fit(engine=...)", engine
    if engine == "auto" and os.environ.get(VARIABLE):
        where, found = f"the environment variable {VARIABLE}", os.environ[VARIABLE]
    if found not in names:
        raise ValueError(f"{where} is {found!r}: write one of {', '.join(map(repr, names))}.")
    chosen: Engine = found  # type: ignore[assignment]  # one of the names, as was just seen
    return chosen


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
        If native code was asked for, and the program cannot be compiled here.
    """
    log = log or EngineLog()
    if engine == "native" or (engine == "auto" and native_pays):
        most = math.inf if engine == "native" else max_flops
        found = _native(program, gradient, moving, resting, row, most, log, data)
        if found is not None:
            return found
        if engine == "native":
            reasons = "; ".join(log.report().reasons) or "it cannot be compiled here"
            warnings.warn(f"engine='native' runs as traced graphs instead: {reasons}.", LoweringWarning, stacklevel=3)
    if data is not None:
        raise OneByOneError("Copies with data of their own run in native code only.")
    with untraced(engine == "python"):
        return BatchedCopies(program, gradient, moving, resting, num_steps, num_cycles, log=log)


def _native(
    program: Program,
    gradient: GradientFunction,
    moving: Any,
    resting: Any,
    row: tuple[Tensor, ...],
    max_flops: float,
    log: EngineLog,
    data: Sequence[tuple[Any, ...]] | None,
) -> NativeCopies | None:
    """Return copies in native code, or None where they cannot be compiled: graphs run from Python would be slower."""
    theta, inputs, _ = program.point(of_copy(moving, 0), program.held(of_copy(resting, 0)))
    args = theta, *inputs, *gradient.data
    flat, _ = flattened(gradient.single, args)
    tensors, counts = tensors_of(args), max_flops < math.inf
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
        lambda found: NativeCopies(program, gradient, moving, resting, found, row, log=log, data=data),
        log,
    )
