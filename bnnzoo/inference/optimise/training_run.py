"""Inputs and result of a training run, whichever loop takes its steps."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.method import Progress
from bnnzoo.engine import pytree
from bnnzoo.inference.optimise.batches import StepBatch
from bnnzoo.inference.optimise.objectives import Objective
from bnnzoo.inference.optimise.observers import Observer
from bnnzoo.inference.optimise.optimisers import Optimiser, State

__all__ = ["STEPS_PER_LOOK", "NoiseAhead", "NoiseSource", "Run", "StepArguments", "Steps", "Trained", "tensors_of"]

STEPS_PER_LOOK = 16
"""Steps after which members that are stuck are looked for: looking waits for the device."""

type NoiseSource = Callable[[torch.Generator], tuple[Tensor, ...]]
"""Draws the random numbers ``[C, ...]`` of the next step, from the stream that the members share or from its own."""


class StepArguments(NamedTuple):
    """What a step is given: its rows, and random numbers ``[C, ...]``."""

    batch: StepBatch
    noise: tuple[Tensor, ...]


@runtime_checkable
class NoiseAhead(Protocol):
    """A source of noise that can draw that of several steps at once."""

    def ahead(self, num_steps: int) -> Tensor | None:
        """Return the noise ``[num_steps, C, ...]`` of the next steps, None if it has to be drawn step by step."""
        ...


class Steps:
    """What each step is given, in their order.

    Parameters
    ----------
    batches : iterator of StepBatch
        Without end.
    noise : NoiseSource
    generator : torch.Generator
        The stream that members share, from which batches and noise are drawn in turn.
    """

    def __init__(self, batches: Iterator[StepBatch], noise: NoiseSource, generator: torch.Generator) -> None:
        self._batches, self._noise, self._generator = batches, noise, generator
        self.first = StepArguments(next(batches), noise(generator))
        self._waiting: StepArguments | None = self.first

    def __next__(self) -> StepArguments:
        """Return what the next step is given."""
        if self._waiting is None:
            return StepArguments(next(self._batches), self._noise(self._generator))
        found, self._waiting = self._waiting, None
        return found

    def take(self, num_steps: int) -> list[StepArguments]:
        """Return what the next steps are given."""
        if num_steps == 1:
            return [next(self)]
        found = [next(self)] if self._waiting is not None else []
        num_left = num_steps - len(found)
        drawn = self._noise.ahead(num_left) if isinstance(self._noise, NoiseAhead) and num_left else None
        if drawn is None:
            return [*found, *(next(self) for _ in range(num_left))]
        return [*found, *(StepArguments(next(self._batches), (row,)) for row in drawn)]


@dataclass(frozen=True)
class Run:
    """Everything about a training run but what each step is given.

    Attributes
    ----------
    objective : Objective
    optimiser : Optimiser
    table : Tensor [num_steps, K]
        Numbers that change from step to step.
    num_own : int
        How many of them are the optimiser's, the first ones; the others are the objective's.
    constants : tuple of Tensor [C, ...]
    start : Tensor [C, Q]
    observe : Observer or None
    progress : Progress
    name : str
        What the progress bar calls the objective.
    shared : callable
        ``(key, make) -> made``: of many fits of one kind, the first makes what all of them share.
    """

    objective: Objective
    optimiser: Optimiser
    table: Tensor
    num_own: int
    constants: tuple[Tensor, ...]
    start: Tensor
    observe: Observer | None
    progress: Progress
    name: str
    shared: Callable[[Hashable, Callable[[], Any]], Any] = lambda key, make: make()

    @property
    def num_steps(self) -> int:
        """Number of steps, if none of the observers ends the run before."""
        return len(self.table)


@dataclass(frozen=True)
class Trained:
    """Where training ended.

    Attributes
    ----------
    params : Tensor [C, Q]
        The last iterate.
    state : tuple of Tensor [C, Q]
        That of the optimiser.
    trace : Tensor [C, num_steps]
        The objective before each step; NaN where the step was refused.
    complete : bool
        False if interrupted from the keyboard.
    last_good : Tensor [C, Q]
        The latest iterate known to have a finite objective and gradient.
    """

    params: Tensor
    state: State
    trace: Tensor
    complete: bool
    last_good: Tensor

    @property
    def num_steps(self) -> int:
        """Number of steps taken."""
        return self.trace.shape[1]

    @property
    def num_rejected(self) -> int:
        """Number of steps that members were refused, all members together."""
        return int(self.trace.isnan().sum())


def tensors_of(batch: StepBatch) -> list[Tensor]:
    """Return the tensors of a batch in the order of its leaves."""
    leaves = batch.data if all(isinstance(each, Tensor) for each in batch.data) else pytree.tree_leaves(batch.data)
    found = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return found if batch.row_weights is None else [*found, batch.row_weights]
