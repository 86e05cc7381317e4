"""Chains in lockstep that move in native code: each on its own between two draws, side by side in threads."""

import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.density import LogDensity
from bnnzoo.core.turns import aside
from bnnzoo.engine.cores import in_threads, num_cores, one_arithmetic_thread, threads_worth
from bnnzoo.engine.loops import Stretch
from bnnzoo.engine.stretches import FIRST_BUDGET, compiled_or_none, next_budget
from bnnzoo.inference.markov.lockstep.dynamics import Point
from bnnzoo.inference.markov.lockstep.motions import Common, Motion, Moving
from bnnzoo.inference.markov.lockstep.native import Chain, Counters, Plan, chain_loop
from bnnzoo.inference.markov.native import Gradient, gradient_of
from bnnzoo.inference.markov.settings import ChainSettings
from bnnzoo.inference.markov.store import not_compiled_here
from bnnzoo.inference.markov.streams import ChainStreams

__all__ = ["Drawn", "NativeMotion", "native_kind", "native_motion"]

NATIVE = "native "

MAX_ROWS, MAX_ENTRIES = 1024, 1 << 16
"""Draws, and entries of draws, that native code keeps before Python fetches them."""


class Drawn(NamedTuple):
    """Where chains are after some draws, these ``[C, N, P]``, their statistics ``[C, N, K]``, and how many ends failed."""

    point: Point
    theta: Tensor
    stats: Tensor
    num_rejected: int


class NativeMotion:
    """What moves a batch of chains in native code, each on its own.

    Random numbers are those of ``streams``, computed inside: draws differ from those of the batched loop by rounding only. They
    depend on neither the number of threads nor the lengths of stretches.

    Parameters
    ----------
    motion : Motion
    gradient : Gradient
        Of the log density.
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    num_threads : int, optional
        Chains that move at a time. Default: one for each core that this process may use.
    compiles : bool
        False to run the traced graphs.
    """

    def __init__(
        self,
        motion: Motion,
        gradient: Gradient,
        theta: Tensor,
        num_threads: int | None = None,
        compiles: bool = True,
    ) -> None:
        self.motion, self.num_chains = motion, len(theta)
        self.num_threads = min(num_threads or num_cores(), self.num_chains)
        self.max_draws = min(MAX_ROWS, max(1, MAX_ENTRIES // theta.shape[1]))
        going, body = chain_loop(motion, gradient.graph)
        chain, plan = _example(motion, gradient, theta[0], self.max_draws)
        self.stretch = Stretch(going, body, chain, plan, (motion, gradient.inner.words), compiles)
        self._fixed = self.stretch.pack_fixed(plan)
        self._plan: Plan = self.stretch.unpack_fixed(self._fixed)
        memory = [tensor.expand(self.num_chains, *tensor.shape).clone() for tensor in self.stretch.pack(chain)]
        self._states = [[tensor[c] for tensor in memory] for c in range(self.num_chains)]
        self._chains: Chain = vmap(self.stretch.unpack)(memory)
        self.budget, self._seconds_per_step = FIRST_BUDGET, 1.0

    def is_native(self) -> bool:
        """Return whether the chains were compiled; a step on a copy of the first one raises if the compiled code fails."""
        if self.stretch.how == "compiled":
            with one_arithmetic_thread():
                self.stretch([tensor.clone() for tensor in self._states[0]], self._fixed)
        return self.stretch.how == "compiled"

    def travel(self, start: Point, common: Common, num_steps: int, streams: ChainStreams) -> Moving:
        """Return where chains are ``num_steps`` steps after ``start[C, ...]``; noise of these steps is taken from ``streams``."""
        self._prepare(start, common, [num_steps], streams)
        self._chains.moving.squares.zero_()
        _write(self._chains.moving.point, start)
        self._chains.counters.left.fill_(num_steps)
        self._run(num_steps)
        streams.go_to(self._chains.counters.normals, streams.num_rows)
        point, squares = self._chains.moving
        return Moving(_copy(point), squares.clone())

    def draw(self, last: Point, common: Common, steps: Sequence[int], streams: ChainStreams) -> Drawn:
        """Return the draws that come after ``last[C, ...]``, one for each number of steps in ``steps``."""
        self._prepare(last, common, steps, streams)
        self._run(sum(steps))
        counters, num = self._chains.counters, len(steps)
        streams.go_to(counters.normals, int(counters.uniforms[0]))
        theta, stats = self._chains.draws[:, :num], self._chains.stats[:, :num]
        return Drawn(_copy(self._chains.start), theta, stats, int(counters.rejected.sum()))

    def _prepare(self, start: Point, common: Common, steps: Sequence[int], streams: ChainStreams) -> None:
        counters, plan = self._chains.counters, self._plan
        _write(self._chains.start, start)
        _write(plan.common, common)
        plan.steps[: len(steps)] = torch.tensor(steps)
        plan.until.fill_(len(steps))
        for each in (counters.draws, counters.left, counters.rejected):
            each.zero_()
        self._chains.keys.copy_(streams.keys)
        counters.normals.copy_(streams.num_normals)
        counters.uniforms.fill_(streams.num_rows)

    def _run(self, num_steps: int) -> None:
        """Move all chains by ``num_steps`` steps, in stretches short enough for an interrupt to wait for their end."""
        while num_steps > 0:
            began, taken = time.perf_counter(), min(num_steps, self.budget)
            self._chains.counters.budget.fill_(taken)
            threads = threads_worth(taken * self.num_chains * self._seconds_per_step, self.num_threads)
            with aside():
                in_threads(self._move, range(self.num_chains), threads)
            rounds = -(-self.num_chains // threads)
            self._seconds_per_step = max((time.perf_counter() - began) / (rounds * taken), 1e-9)
            self.budget = next_budget(self.budget, 1, self._seconds_per_step)
            num_steps -= taken

    def fitting(self, steps: list[int]) -> list[int]:
        """Return as many of the numbers of steps as fit into one stretch, and one at least."""
        return steps[: max(sum(taken <= self.budget for taken in accumulate(steps)), 1)]

    def _move(self, chain: int) -> None:
        self.stretch(self._states[chain], self._fixed)


def native_kind(kind: str) -> str:
    """Return the name that a checkpoint gives to a loop of this kind whose chains move in native code."""
    return f"{NATIVE}{kind}"


def native_motion(
    motion: Motion, settings: ChainSettings, density: LogDensity, theta: Tensor, kind: str | None
) -> NativeMotion | None:
    """Return what moves chains from ``theta[C, P]`` in native code, or None where that does not pay or cannot be done.

    Parameters
    ----------
    motion : Motion
    settings : ChainSettings
        Of the fit, all of whose chains decide, so that groups of chains run as all of them would.
    density : LogDensity
    theta : Tensor
    kind : str, optional
        Kind of loop that wrote the checkpoint to resume from.

    Raises
    ------
    ValueError
        If a checkpoint asks for native code, and the model cannot be compiled.
    """
    wanted = settings.in_native_code(density) if kind is None else kind.startswith(NATIVE)
    found = compiled_or_none(gradient_of(density), lambda g: NativeMotion(motion, g, theta)) if wanted else None
    if found is None and kind is not None and wanted:
        raise not_compiled_here()
    return found


def _example(motion: Motion, gradient: Gradient, theta: Tensor, num_rows: int) -> tuple[Chain, Plan]:
    """Return a chain that is about to take a draw of two steps and, where there is room, another, to be traced and tried."""
    value, slope = gradient.graph(*gradient.constants, theta, *gradient.tensors)
    zero, ones = torch.zeros_like(value), torch.ones_like(theta)
    point = Point(theta, motion.dynamics.refresh(ones), slope, value, zero)
    counters = Counters(*(torch.tensor(n) for n in (0, 0, 3, 0, 0, 0)))
    draws, stats = theta.new_zeros(num_rows + 1, len(theta)), torch.zeros(num_rows + 1, motion.num_stats).double()
    steps = torch.ones(num_rows, dtype=torch.int64)
    steps[0] = 2
    common, until = Common(ones, zero + 1e-3, zero + 1e-2), torch.tensor(min(2, num_rows))
    plan = Plan(common, steps, until, gradient.constants, gradient.tensors)
    return Chain(point, Moving(point, zero), counters, torch.tensor([1, 2]), draws, stats), plan


def _copy(point: Point) -> Point:
    return Point(*(value.clone() for value in point))


def _write(views: Any, values: Any) -> None:
    for view, value in zip(cast(tuple[Tensor, ...], views), values, strict=True):
        view.copy_(value)
