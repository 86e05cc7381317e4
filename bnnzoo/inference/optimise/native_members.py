"""Members that train in native code: each on its own, side by side in threads, many steps a call."""

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.program.turns import aside
from bnnzoo.engine import pytree
from bnnzoo.engine.chunks import FIRST_BUDGET, Inner, next_budget
from bnnzoo.engine.cores import in_threads, num_cores, one_arithmetic_thread, threads_worth
from bnnzoo.engine.loops import Chunk
from bnnzoo.engine.reports import EngineLog
from bnnzoo.inference.optimise.objectives import ObjectiveInputs, inputs_of_member
from bnnzoo.inference.optimise.step_inputs import StepInputs, shapes_of
from bnnzoo.inference.optimise.training_program import Layout, Member, TrainingCounters, TrainingPlan, member_loop
from bnnzoo.inference.optimise.training_run import STEPS_PER_LOOK, Run, StepArguments, Trained, tensors_of

__all__ = ["NativeMembers"]

MAX_STEPS, MAX_ENTRIES, MAX_ENTRIES_OF_ALL = 256, 1 << 20, 1 << 25
"""Steps of a chunk, and numbers that lie in memory for those of one member and of all."""

FIRST_FLOPS = 500_000_000
"""Multiplications and additions of all members in the first chunk, before its time is known."""

TRIAL_STEP_FACTOR = 1e-3
"""Factor of the steps with which native code is tried: gradients lost in rounding differ in sign, and so do Adam's steps then."""


class NativeMembers:
    """Members that train in native code, each on its own.

    Parameters
    ----------
    run : Run
    inner : Inner
        Gradient of one member's objective; see :func:`bnnzoo.inference.optimise.native_training.member_gradient`.
    first : StepArguments
        What the first step is given, of the same shapes as all others.
    same_rows : bool
        Whether every step sees the same rows.
    num_threads : int, optional
        Members that train at a time. Default: one for each core that this process may use.
    compiles : bool
        False to run the traced graphs.
    log : EngineLog, optional
        Takes down why the loop cannot be compiled.
    """

    def __init__(
        self,
        run: Run,
        inner: Inner,
        first: StepArguments,
        same_rows: bool,
        num_threads: int | None = None,
        compiles: bool = True,
        log: EngineLog | None = None,
    ) -> None:
        self._run, self.num_members = run, len(run.start)
        self.num_threads = min(num_threads or num_cores(), self.num_members)
        self.max_steps = _max_steps(run, shapes_of(first, same_rows))
        self._inputs = StepInputs(first, same_rows, self.max_steps)
        self._table = TRIAL_STEP_FACTOR * run.table[:1].repeat(self.max_steps, 1)
        plans = []
        for member in range(self.num_members):
            inputs = inputs_of_member(ObjectiveInputs((), run.constants, (), first.batch), member)
            rows = [each.detach() for each in tensors_of(inputs.batch)] if same_rows else []
            given = self._inputs.of_member(member)
            plans.append(TrainingPlan(self._table, given, list(inputs.constants), rows, inner.constants))
        layout, example = Layout(run.num_own, len(first.noise), self._inputs.shapes), _example(run, self.max_steps)
        going, body = member_loop(run.optimiser, inner, layout)
        key = (run.optimiser, layout, inner.words)
        self.chunk = Chunk(going, body, example, plans[0], key, "cpp" if compiles else False, log)
        self._plans = [self.chunk.pack_fixed(plan) for plan in plans]
        memory = [tensor.expand(self.num_members, *tensor.shape).clone() for tensor in self.chunk.pack(example)]
        self._states = [[tensor[c] for tensor in memory] for c in range(self.num_members)]
        self._members: Member = vmap(self.chunk.unpack)(memory)
        self._changing = pytree.tree_leaves(_changing(self._members))
        pairs = zip(
            pytree.tree_leaves(self._members[:3]),
            pytree.tree_leaves((run.start, run.optimiser.start(run.start), run.start)),
            strict=True,
        )
        for view, value in pairs:
            view.copy_(value)
        self._members.counters.taken.zero_()
        self._before = self._copy()
        self.budget = max(1, min(FIRST_BUDGET, self.max_steps, FIRST_FLOPS // max(inner.flops * self.num_members, 1)))
        self._seconds_per_step = 0.0

    @property
    def reads_steps(self) -> bool:
        """Whether steps are given anything, such as random numbers or rows of their own."""
        return self._inputs.holds_anything

    def is_native(self) -> bool:
        """Return whether the loop was compiled; some steps of a copy of a member raise if the compiled code fails."""
        if self.chunk.how == "compiled":
            with one_arithmetic_thread():
                self.chunk([tensor.clone() for tensor in self._states[0]], self._plans[0])
        return self.chunk.how == "compiled"

    def advance(self, table: Tensor, given: Sequence[StepArguments]) -> tuple[Tensor, Tensor]:
        """Take a step for each row of ``table[n, K]``, and return values and iterates.

        Returns
        -------
        Tensor [C, n]
            The objective before each step.
        Tensor [C, n, Q]
            The iterates after it, if somebody observes them; valid until the next call.
        """
        self._table[: len(table)] = table
        self._inputs.write(given)
        self._before = self._copy()
        self._go(len(table))
        return self._members.values[:, : len(table), 0].clone(), self._members.iterates[:, : len(table)]

    def go_back(self, taken: int) -> None:
        """Be where ``taken`` steps led, all of them those of the last chunk or before it."""
        if not bool((self._members.counters.taken == taken).all()):
            for view, value in zip(self._changing, self._before, strict=True):
                view.copy_(value)
            self._go(taken - int(self._members.counters.taken[0]))

    def ended(self, trace: Tensor, complete: bool) -> Trained:
        """Return where members are."""
        params, moments, good = pytree.tree_map(torch.clone, self._members[:3])
        return Trained(params, moments, trace, complete, good)

    def _go(self, num_steps: int) -> None:
        """Take steps of a chunk, from its first one."""
        self._members.counters.place.zero_()
        self._members.counters.left.fill_(num_steps)
        expected = num_steps * self.num_members * self._seconds_per_step
        threads = threads_worth(expected, self.num_threads)
        began = time.perf_counter()
        with aside(expected if self._seconds_per_step else math.inf):
            in_threads(self._move, range(self.num_members), threads)
        seconds = max(time.perf_counter() - began, 1e-9)
        self._seconds_per_step = seconds / (num_steps * -(-self.num_members // threads)) if num_steps else 0.0
        self.budget = min(next_budget(self.budget, num_steps, seconds), self.max_steps)

    def _move(self, member: int) -> None:
        self.chunk(self._states[member], self._plans[member])

    def _copy(self) -> list[Tensor]:
        return [each.clone() for each in self._changing]


def _example(run: Run, max_steps: int) -> Member:
    """Return a member that is about to take a few steps, with a look at whether it is stuck, to be traced and tried."""
    start = run.start[0].clone()
    moments = tuple(each[0] for each in run.optimiser.start(run.start[:1]))
    iterates = start.new_zeros(max_steps if run.observe is not None else 1, len(start))
    counters = TrainingCounters(*(torch.tensor(n) for n in (STEPS_PER_LOOK - 2, 0, min(max_steps, 3))))
    return Member(start, moments, start, start.new_zeros(()), start.new_zeros(max_steps, 1), iterates, counters)


def _max_steps(run: Run, shapes: Sequence[tuple[int, ...]]) -> int:
    """Return how many steps of one member fit into memory at a time, the same for every length of a run: it is compiled in."""
    num_iterates = run.start.shape[1] if run.observe is not None else 0
    entries = run.table.shape[1] + num_iterates + sum(map(math.prod, shapes))
    return max(1, min(MAX_STEPS, MAX_ENTRIES // entries, MAX_ENTRIES_OF_ALL // (entries * len(run.start))))


def _changing(member: Member) -> Any:
    """Return all that changes but the rows of a chunk."""
    return member.params, member.moments, member.good, member.last, member.counters
