"""Limits from which each way of running pays, with their measurements: native code, graphs, threads, lengths of chunks.

A run may be Python, a graph of torch's operations, such a graph compiled by torch or recorded on a GPU, or native code, on one
thread or several. Draws are the same but for rounding, so that the choice is one of time alone. It follows from what is asked for
and from what is expected of the run: its numbers of steps, calls, copies and operations. Clocks say only how many threads run,
and how much is done between two looks at the keyboard, neither of which changes a draw.

Every limit stands here, in this order: the engine that is asked for; native code or a batch; graphs, compiled and recorded;
expected numbers of calls; threads; lengths of chunks. Processors differ, and limits need not be exact: near one, either way does.
"""

import math
import os
from typing import Literal, get_args

__all__ = [
    "ASIDE_PAYS_FROM",
    "CALLS_OF_A_SEARCH",
    "CALLS_OF_HESSIANS",
    "CALLS_OF_THE_LOG_JOINT",
    "CALLS_TO_RECORD",
    "COMPILE_SECONDS",
    "FIRST_BUDGET",
    "FIRST_FLOPS",
    "FITS_TOGETHER",
    "MAX_ENTRIES_TO_PAD",
    "MAX_NATIVE_CHAINS",
    "MAX_NATIVE_FLOPS",
    "MAX_NATIVE_MEMBERS",
    "MIN_BLOCKS_TO_TRACE",
    "MIN_FITS_TO_COMPILE_SEARCHES",
    "NATIVE_PAYS_FROM",
    "NATIVE_PAYS_FROM_SECONDS",
    "POINTS_OF_A_SEARCH",
    "SECONDS_PER_CHUNK",
    "STEPS_OF_A_PATH",
    "Engine",
    "OneByOneError",
    "asked_for",
    "estimated_seconds",
    "next_budget",
    "next_number_together",
    "one_thread_pays",
    "seconds_to_compile",
    "threads_pay_for_fits",
    "threads_worth",
    "typical_num_steps",
]

type Engine = Literal["auto", "native", "graph", "python"]

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

MAX_NATIVE_CHAINS = 1024
"""Chains up to which moving each on its own beats a batch, in which they share what operations cost to be called.

Processor seconds of a second fit, native and in a batch. NUTS to 80 rows of five inputs, 50 + 50 draws: 32 chains, 0.1 and 4.0,
128 chains, 0.2 and 6.0, 256 chains, 0.4 and 32, where all wait for the longest; 1,024 chains of ten parameters, 1.8 natively.
1,024 chains of ten parameters, 50 + 50 draws: MAMS 2.8 and 2.9, ChEESHMC 3.2 and 2.4, SGLD 1.5 and 6.4; of a network of 51
weights, MAMS 9.8 and 21, ChEESHMC 7.7 and 22. More were not measured.
"""

MAX_NATIVE_MEMBERS = 256
"""Members up to which training each on its own beats a batch, in which small ones share what operations cost to be called.

An ensemble of that regression, 100 steps, takes 0.3 s of processor time in native code and 0.4 s in a batch with 64 members, 1.8
and 1.4 with 256, 2.9 and 2.7 with 512: neither wins from there on, and a batch needs no compiler.
"""

MAX_NATIVE_FLOPS = 50_000_000
"""Multiplications and additions in a step of one member, or in a gradient of mini-batches of one chain, up to which native code
pays, unless it is asked for: larger steps share them among cores.

Processor seconds of 60 steps of a network, in native code and as a graph: 1.5 and 1.5 with 6 million, 2.2 and 2.5 with 49, 4.4
and 4.8 with 197. They are alike, and torch's threads divide them where a step takes milliseconds.
"""

MIN_FITS_TO_COMPILE_SEARCHES = 30
"""Fits of one kind whose searches for modes take as long in Python as compiling takes, about 2 s."""

NATIVE_PAYS_FROM_SECONDS = 0.5
"""Seconds of torch's operations from which native code pays that holds no loop of its own: a block of a prediction, a function
at many points. Tracing and compiling in C++ take 0.2 to 0.6 s, and four fifths of the operations' time are saved.
"""


def typical_num_steps(num_params: int) -> int:
    """Return the number of gradient steps that a draw of ``num_params`` parameters typically takes.

    It decides whether a run is long enough to pay for compiling. Measured: 7 steps for 3 parameters of a linear model, 500 for
    the 502 of a network, whose scales differ more.

    Examples
    --------
    >>> typical_num_steps(100)
    40
    """
    return math.ceil(4 * math.sqrt(num_params))


MIN_BLOCKS_TO_TRACE = 64
"""Blocks of draws or rows from which a graph of one is made: tracing takes about as long as so many evaluations."""

COMPILE_SECONDS, COMPILED_NODES = 5.0, 500
"""Assumed time in which torch compiles a graph, and for so many nodes of a larger one.

Measured: 0.5 to 4 s for a graph that was compiled before, 4 to 9 s for a new one; processor time of 28 s for the 3,088 nodes of a
series of 200 steps, 35 s for the 1,229 nodes of a flow.
"""

SECONDS_PER_NODE, SECONDS_PER_ELEMENT = 1.2e-5, 0.5e-9
"""Rough cost of a traced graph on a CPU, so that the choice to compile never depends on a clock.

Measured 4 us a node where a graph runs over and over, and 13 where others run in between, as in a loop of several steps.
"""

SECONDS_PER_KERNEL, SECONDS_PER_ELEMENT_ON_GPU = 2.5e-6, 5e-12
"""The same of a recorded graph on a data centre's GPU: a short kernel, and 4 bytes read and written."""

CALLS_TO_RECORD = 20
"""Calls after which a graph on a GPU is recorded, which takes about five calls and some milliseconds."""


def seconds_to_compile(num_nodes: int) -> float:
    """Return about how long torch compiles a graph of so many operations.

    Examples
    --------
    >>> seconds_to_compile(20), seconds_to_compile(1000)
    (5.0, 10.0)
    """
    return COMPILE_SECONDS * max(1.0, num_nodes / COMPILED_NODES)


def estimated_seconds(num_operations: int, num_elements: int, *, on_gpu: bool = False) -> float:
    """Return roughly how long so many operations take, given the number of elements of all their results.

    On a GPU where they are recorded, so that no time is spent on launching kernels.
    """
    if on_gpu:
        return num_operations * SECONDS_PER_KERNEL + num_elements * SECONDS_PER_ELEMENT_ON_GPU
    return num_operations * SECONDS_PER_NODE + num_elements * SECONDS_PER_ELEMENT


CALLS_OF_A_SEARCH, POINTS_OF_A_SEARCH = 64, 8
"""Evaluations in which the modes of a small model are found: measured 50 to 100 calls, of one to eight points each."""

MAX_ENTRIES_TO_PAD = 2**13
"""Parameters times observations up to which all of a search's points cost hardly more than one, and less than another graph,
40 ms: one that serves up to eight of them is made.
"""

CALLS_OF_HESSIANS = 4
"""How often a fit asks for Hessians on the way to a mode, and there."""

CALLS_OF_THE_LOG_JOINT = 2
"""How often a fit asks for the log joint density of many points: twice on the way to a mode."""

STEPS_OF_A_PATH = 60
"""Evaluations of the gradient on the way of Pathfinder to a mode."""


THREADS_PAY_FROM = 2e-3
"""Seconds of work from which threads are started; for less, starting them costs a good part of what they save."""

ASIDE_PAYS_FROM = 2e-3
"""Seconds of work from which stepping aside pays, for other threads to go on: it costs 0.3 ms, and whoever comes meanwhile waits
no longer than this.
"""

NATIVE_SHARE = 0.5
"""Of the seconds of a fit in native code, from which two fits at a time end sooner; of less, threads cost a fifth more."""

MAX_ENTRIES_FOR_ONE_THREAD = 2**16
"""Parameters times observations of a model for which torch's threads cost more than they save: they wait for work on a core."""


def threads_worth(seconds: float, most: int) -> int:
    """Return how many threads to start for so many seconds of work: as many as there may be, or one."""
    return most if seconds >= THREADS_PAY_FROM else 1


def threads_pay_for_fits(seconds_native: float, seconds: float) -> bool:
    """Tell whether fits like one that took so many seconds, some of them in native code, end sooner on several threads."""
    return seconds_native > NATIVE_SHARE * seconds


def one_thread_pays(num_params: int, num_data: int) -> bool:
    """Tell whether models of this size are computed on a single thread.

    Examples
    --------
    >>> one_thread_pays(10, 80), one_thread_pays(1000, 100_000)
    (True, False)
    """
    return num_params * num_data <= MAX_ENTRIES_FOR_ONE_THREAD


SECONDS_PER_CHUNK = 0.1
"""Time that a chunk of steps should take: interrupts and progress bars wait for its end."""

FIRST_BUDGET, MAX_GROWTH = 64, 4
"""Steps of the first chunk, before its time is known, and how many times as long the next one may be."""

FIRST_FLOPS = 500_000_000
"""Multiplications and additions of all members in the first chunk of a training, before its time is known."""

FITS_TOGETHER, MOST_TOGETHER, SECONDS_TOGETHER = 20, 200, 1.0
"""Fits that run side by side at first, and at most where so many take less time than that: what Python does once for all of them
is then small beside what it does for each, and what an interruption loses is small, too.
"""


def next_budget(budget: int, num_steps: int, seconds: float) -> int:
    """Return the number of steps of the next chunk, after one in which ``num_steps`` took so many seconds."""
    return max(1, min(int(num_steps * SECONDS_PER_CHUNK / seconds), budget * MAX_GROWTH))


def next_number_together(number: int, seconds: float) -> int:
    """Return how many fits to run side by side next, after so many of them took so many seconds.

    Examples
    --------
    >>> next_number_together(20, 0.2), next_number_together(20, 3.0)
    (40, 20)
    """
    return max(number, min(2 * number, MOST_TOGETHER)) if seconds < SECONDS_TOGETHER else number
