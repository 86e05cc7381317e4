"""The runner: many copies of a program, in native code, as a batch of traced graphs, or as Python."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.engine.agreement import STEPS_TRIED
from bnnzoo.engine.choose import FIRST_BUDGET, SECONDS_PER_CHUNK, next_budget, threads_worth
from bnnzoo.engine.chunks import Inner
from bnnzoo.engine.cores import in_threads, num_cores
from bnnzoo.engine.loops import Chunk, Compiles
from bnnzoo.engine.lowered import LoopStep, tensors_of
from bnnzoo.engine.program import Copy, GradientFunction, Program, batched_stage, batched_step, native_loop
from bnnzoo.engine.registers import HeldTree, Stacks, TreeRegisters
from bnnzoo.engine.reports import EngineLog

__all__ = ["BatchedCopies", "Fleet", "NativeCopies", "Runner", "of_copy"]

MAX_ROWS, MAX_ENTRIES = 1024, 1 << 20
"""Rows, and entries of rows, that a copy in native code keeps before Python fetches them."""


class Fleet(ABC):
    """Copies of a program and their state, held in few tensors.

    Parameters
    ----------
    program : Program
    gradient : GradientFunction
    num_copies : int
    log : EngineLog
        Takes down how the copies run, and why.
    """

    def __init__(self, program: Program, gradient: GradientFunction, num_copies: int, log: EngineLog) -> None:
        self.program, self.gradient, self.num_copies, self.log = program, gradient, num_copies, log

    @property
    @abstractmethod
    def how(self) -> str:
        """How a step runs: "compiled", "recorded" as a CUDA graph, "traced" or "eager"."""

    @property
    @abstractmethod
    def moving(self) -> Any:
        """What changes at every step, ``[C, ...]``; views, truth values may be copies."""

    @property
    @abstractmethod
    def resting(self) -> Any:
        """What changes in stages, ``[C, ...]``; views, truth values may be copies."""

    @abstractmethod
    def write(self, moving: Any = None, resting: Any = None) -> None:
        """Replace the state of all copies."""

    @abstractmethod
    def advance(self) -> None:
        """Run the copies that are going for about a tenth of a second, or until one of them waits."""

    @abstractmethod
    def gather(self, into: Sequence[Tensor | None], counts: Tensor, copies: Tensor | None = None) -> None:
        """Write the rows kept since the last time to ``into[C, S, ...]`` behind the first ``counts[C]``, which grow.

        What stands in a row where ``into`` has None, or nothing, is dropped. With ``copies[C]``, truth values, only theirs are
        written, and those of others stay.
        """

    @abstractmethod
    def tried(self, moving: Any, resting: Any) -> Any:
        """Return what moves, after one step from another state ``[C, ...]``; the fleet is left as it is."""


class NativeCopies(Fleet):
    """Copies that run one by one in native code, side by side in threads.

    Results depend on neither the number of threads nor the lengths of runs.

    Parameters
    ----------
    program, gradient, moving, resting
        As in :class:`Fleet`.
    inner : Inner
        The gradient as a graph.
    row : tuple of Tensor
        Example of a row that the program keeps; empty if it keeps none.
    num_threads : int, optional
        Copies that run at a time. Default: one for each core that this process may use.
    compiles : bool or "cpp"
        As in :class:`bnnzoo.engine.loops.Chunk`.
    log : EngineLog, optional
    data : sequence of tuple, optional
        Those of each copy, of the shapes of ``gradient.data``. Default: all have these.
    """

    def __init__(
        self,
        program: Program,
        gradient: GradientFunction,
        moving: Any,
        resting: Any,
        inner: Inner,
        row: tuple[Tensor, ...],
        num_threads: int | None = None,
        compiles: Compiles = True,
        log: EngineLog | None = None,
        data: Sequence[tuple[Any, ...]] | None = None,
    ) -> None:
        largest = max((each.numel() for each in row), default=1)
        number = min(MAX_ROWS, max(1, MAX_ENTRIES // max(largest, 1))) + 1
        example = Copy(
            of_copy(moving, 0),
            of_copy(resting, 0),
            torch.tensor(STEPS_TRIED),
            torch.tensor(0),
            tuple(each.new_zeros(number, *each.shape) for each in row),
        )
        self._moving, self._resting = TreeRegisters(example.moving), TreeRegisters(example.resting)
        super().__init__(program, gradient, len(pytree.tree_leaves(resting)[0]), log or EngineLog())
        self.num_threads, self.flops = min(num_threads or num_cores(), self.num_copies), inner.flops
        going, body = native_loop(program, inner.graph)
        given = inner.constants, tensors_of(gradient.data)
        self.chunk = Chunk(going, body, example, given, (program.key, inner.words), compiles, self.log)
        self._data = self._packed(inner, [gradient.data] * self.num_copies if data is None else data)
        packed = self.chunk.pack(example)
        self._memory = [each.expand(self.num_copies, *each.shape).clone() for each in packed]
        self._of_copies = {copy: [each[copy] for each in self._memory] for copy in range(self.num_copies)}
        self._moving_tree = HeldTree(self._moving, self._memory[: self._moving.num_tensors])
        self._resting_tree = HeldTree(self._resting, self._memory[self._of_resting])
        self.write(moving, resting)
        *_, budget, num_rows = self._memory[: len(packed) - len(row)]
        self._left, self.num_rows, self.rows = budget[:, 0], num_rows[:, 0], self._memory[len(packed) - len(row) :]
        self._budget = FIRST_BUDGET
        # that native code took last for all copies together: for a run, and for a single step
        self._seconds = self._step_seconds = math.inf

    @property
    def how(self) -> str:
        """How the loop of one copy runs, as :class:`bnnzoo.engine.loops.Chunk` says."""
        return self.chunk.how

    @property
    def moving(self) -> Any:
        """What changes at every step, ``[C, ...]``; views, but for truth values."""
        return self._moving_tree.tree()

    @property
    def resting(self) -> Any:
        """What changes in stages, ``[C, ...]``; views, but for truth values."""
        return self._resting_tree.tree()

    def write(self, moving: Any = None, resting: Any = None) -> None:
        """Replace the state of all copies."""
        if moving is not None:
            self._moving_tree.write(moving)
        if resting is not None:
            self._resting_tree.write(resting)

    def is_native(self) -> bool:
        """Return whether the loop was compiled; a step on a copy of the first state, of a new loop, raises if the code fails."""
        if self.how == "compiled" and not self.chunk.was_known:
            self.tried(self.moving, self.resting, [0])
        return self.how == "compiled"

    def advance(self) -> None:
        """Let every copy that is going run for a while. An interrupt waits until these runs end."""
        going = self.program.going(self.moving, self.resting).nonzero()[:, 0].tolist()
        self._left.fill_(self._budget)
        self._seconds = self._run(self._of_copies, going, min(self._seconds, self._budget * self._step_seconds))
        taken = int((self._budget - self._left[going]).max()) if going else 0
        self._budget = next_budget(self._budget, max(taken, 1), max(self._seconds / max(len(going), 1), 1e-9))

    def gather(self, into: Sequence[Tensor | None], counts: Tensor, copies: Tensor | None = None) -> None:
        """Write the rows kept since the last time to ``into[C, S, ...]`` behind the first ``counts[C]``, which grow.

        What stands in a row where ``into`` has None, or nothing, is dropped. With ``copies[C]``, truth values, only theirs are
        written, and those of others stay.
        """
        places = [(place, buffer) for place, buffer in zip(into, self.rows, strict=False) if place is not None]
        due = self.num_rows > 0 if copies is None else (self.num_rows > 0) & copies
        chosen = due.nonzero()[:, 0]
        spans = list(zip(counts[chosen].tolist(), self.num_rows[chosen].tolist(), strict=True))
        for start, number in dict.fromkeys(spans):
            alike = chosen[[span == (start, number) for span in spans]]
            stop = min(start + number, places[0][0].shape[1])
            for place, buffer in places:
                place[alike, start:stop] = buffer[alike, : stop - start]
            counts[alike] = stop
        self.num_rows[due] = 0

    def tried(self, moving: Any, resting: Any, copies: Sequence[int] | None = None) -> Any:
        """Return what moves, after one step from another state ``[C, ...]``, the fleet left as it is."""
        num_rows = len(self.rows)  # which no step reads
        memory = [each.clone() for each in self._memory[: len(self._memory) - num_rows]]
        memory += [torch.empty_like(each) for each in self.rows]
        if moving is not None:
            self._moving.write(memory[: self._moving.num_tensors], moving, lead=1)
        if resting is not None:
            self._resting.write(memory[self._of_resting], resting, lead=1)
        budget, kept = memory[len(memory) - num_rows - 2 : len(memory) - num_rows]
        budget.fill_(1)
        kept.zero_()

        chosen = range(self.num_copies) if copies is None else copies
        states = {copy: [each[copy] for each in memory] for copy in chosen}
        self._step_seconds = self._run(states, chosen, self._step_seconds)
        return self._moving.tree(memory[: self._moving.num_tensors], lead=1)

    def _run(self, states: Mapping[int, Sequence[Tensor]], copies: Sequence[int], expected: float) -> float:
        """Run copies, side by side if so many seconds of work are worth it, and return those that they took together.

        The time to start threads is not among them, or these would always seem to pay.
        """
        seconds: list[float] = []

        def run(copy: int) -> None:
            began = time.perf_counter()
            self.chunk(states[copy], self._data[copy])
            seconds.append(time.perf_counter() - began)

        in_threads(run, copies, threads_worth(expected, self.num_threads))
        return sum(seconds)

    @property
    def _of_resting(self) -> slice:
        return slice(self._moving.num_tensors, self._moving.num_tensors + self._resting.num_tensors)

    def _packed(self, inner: Inner, data: Sequence[tuple[Any, ...]]) -> list[list[Tensor]]:
        """Return the data of each copy as tensors for native code; equal ones are packed once."""
        packed: dict[int, list[Tensor]] = {}
        for each in data:
            if id(each) not in packed:
                packed[id(each)] = self.chunk.pack_fixed((inner.constants, tensors_of(each)))
        return [packed[id(each)] for each in data]


class BatchedCopies(Fleet):
    """Copies in one batch, none of which waits for another: a stage runs where it is due in any of them.

    Parameters
    ----------
    program, gradient, moving, resting
        As in :class:`Fleet`.
    num_steps, num_cycles : int
        How many there will be in all, if all goes well: what decides whether a stage is compiled at once.
    log : EngineLog, optional
    """

    def __init__(
        self,
        program: Program,
        gradient: GradientFunction,
        moving: Any,
        resting: Any,
        num_steps: int = 0,
        num_cycles: int = 0,
        log: EngineLog | None = None,
    ) -> None:
        super().__init__(program, gradient, len(pytree.tree_leaves(resting)[0]), log or EngineLog())
        self._moving, self._resting = Stacks(moving), Stacks(resting)
        self.write(moving, resting)
        state = self._moved, self._rested
        step, fallback = (
            batched_step(program, function, self._moving, self._resting)
            for function in (gradient.batched, gradient.looped)
        )
        first, second = len(self._moved), len(self._moved) + len(self._rested)
        self._step = LoopStep(
            step, *state, *gradient.data, fallback=fallback, at_least=num_steps, log=self.log, num_carried=first
        )
        self._tensors = tensors_of(gradient.data)
        stages, following = (program.begin, *program.stages), (None, *program.stages[1:], None)
        self._begin, *self._stages = [
            LoopStep(
                batched_stage(program, stage, after, self._moving, self._resting),
                *state,
                at_least=num_cycles,
                log=EngineLog(),
                num_carried=second,
            )
            for stage, after in zip(stages, following, strict=True)
        ]
        self._kept: list[Sequence[Tensor]] = []

    @property
    def how(self) -> str:
        """How a step of all copies runs, as :class:`bnnzoo.engine.lowered.Specialized` says."""
        return self._step.how

    @property
    def moving(self) -> Any:
        """What changes at every step, ``[C, ...]``, as views."""
        return self._moving.tree(self._moved)

    @property
    def resting(self) -> Any:
        """What changes in stages, ``[C, ...]``, as views."""
        return self._resting.tree(self._rested)

    def write(self, moving: Any = None, resting: Any = None) -> None:
        """Replace the state of all copies."""
        if moving is not None:
            self._moved = [each.clone() for each in self._moving.packed(moving)]
        if resting is not None:
            self._rested = [each.clone() for each in self._resting.packed(resting)]

    def advance(self) -> None:
        """Run for about a tenth of a second, or until a copy waits; those that have ended go on beside the others."""
        until = time.monotonic() + SECONDS_PER_CHUNK
        with torch.no_grad():
            while True:
                self._apply(self._begin)
                *row, waits = self._cycle()
                if row:
                    self._kept.append(row)
                if bool(waits) or time.monotonic() >= until:
                    return

    def replace_data(self, data: Sequence[Tensor]) -> None:
        """Let steps see other tensors of the same shapes in place of those of the gradient function."""
        self._tensors = list(data)

    def gather(self, into: Sequence[Tensor | None], counts: Tensor, copies: Tensor | None = None) -> None:
        """Write the rows kept since the last time to ``into[C, S, ...]`` behind the first ``counts[C]``, which grow.

        What stands in a row where ``into`` has None, or nothing, is dropped. With ``copies[C]``, truth values, only theirs are
        written, and those of others stay.
        """
        others: list[Sequence[Tensor]] = []
        for *row, kept in self._kept:
            places = [(place, values) for place, values in zip(into, row, strict=False) if place is not None]
            due = kept.cpu()
            if copies is not None and bool((rest := due & ~copies).any()):
                others.append((*row, rest))
            due = (due if copies is None else due & copies).nonzero()[:, 0]
            due = due[counts[due] < places[0][0].shape[1]]
            for place, values in places:
                here, there = due.to(place.device), due.to(values.device)
                place[here, counts[due].to(place.device)] = values[there].to(place.device)
            counts[due] += 1
        self._kept = others

    def tried(self, moving: Any, resting: Any) -> Any:
        """Return what moves, after one step from another state ``[C, ...]``; the fleet is left as it is."""
        kept = [each.clone() for each in self._moved]
        with torch.no_grad():
            *moved, _ = self._step(*self._moving.packed(moving), *self._resting.packed(resting), *self._tensors)
            found = self._moving.tree([each.clone() for each in moved])
        self._moved = kept
        return found

    def _cycle(self) -> Sequence[Tensor]:
        """Take steps until a copy has ended its cycle, and return what the last stage found."""
        while True:
            left = 1
            while left > 0:
                for _ in range(left):  # where the number is known, the host asks for it once, and not after every step
                    *self._moved, fewest = self._step(*self._moved, *self._rested, *self._tensors)
                left = int(fewest)
            for stage in self._stages[:-1]:
                if not bool(self._apply(stage)[-1]):
                    break
            else:
                return self._apply(self._stages[-1])

    def _apply(self, stage: LoopStep) -> Sequence[Tensor]:
        """Run a stage, and return what it found besides the states."""
        found = list(stage(*self._moved, *self._rested))
        first, second = len(self._moved), len(self._moved) + len(self._rested)
        self._moved, self._rested = found[:first], found[first:second]
        return found[second:]


type Runner = NativeCopies | BatchedCopies


def of_copy(tree: Any, copy: int) -> Any:
    """Return the state of one copy, cloned."""
    return pytree.tree_map(lambda value: value[copy].clone(), tree)
