"""Names of the engines, the one that is asked for, and what native code has to repay."""

import os
from typing import Literal, get_args

__all__ = ["MIN_BLOCKS_TO_TRACE", "NATIVE_PAYS_FROM", "Engine", "OneByOneError", "asked_for"]

MIN_BLOCKS_TO_TRACE = 64
"""Blocks of draws or rows from which a graph of one is made: tracing takes about as long as so many evaluations."""

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
