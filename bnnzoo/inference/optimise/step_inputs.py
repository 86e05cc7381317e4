"""Inputs of a chunk of native steps, in memory that it reads: random numbers, and rows that change."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.inference.optimise.batches import StepBatch
from bnnzoo.inference.optimise.training_run import StepArguments, tensors_of

__all__ = ["StepInputs", "are_own"]

MAX_STEPS, MAX_ENTRIES, MAX_ENTRIES_OF_ALL = 256, 1 << 20, 1 << 25
"""Steps of a chunk, and numbers that lie in memory for those of one member and of all."""


class StepInputs:
    """Memory for the random numbers and rows of the steps of a chunk.

    Parameters
    ----------
    first : StepArguments
        What the first step is given, of the same shapes as all others.
    same_rows : bool
        Whether every step sees the same rows, which then need no memory here.
    num_members : int
    num_others : int
        Numbers of a step and member that lie in memory besides.

    Attributes
    ----------
    shapes : tuple of tuple of int
        Shape of each tensor of a step as one member sees it.
    max_steps : int
        Steps of a chunk R, the same for every length of a run: it is compiled in.
    has_own : bool
        Whether members are given something of their own.
    """

    def __init__(self, first: StepArguments, same_rows: bool, num_members: int, num_others: int) -> None:
        self._same_rows = same_rows
        self._own = [True] * len(first.noise) + ([] if same_rows else are_own(first.batch))
        self.has_own, examples = any(self._own), self._tensors(first)
        self.shapes = tuple(tuple(each.shape[own:]) for each, own in zip(examples, self._own, strict=True))
        entries = num_others + sum(map(math.prod, self.shapes))
        self.max_steps = max(1, min(MAX_STEPS, MAX_ENTRIES // entries, MAX_ENTRIES_OF_ALL // (entries * num_members)))
        self._memory = [_memory(each, own, self.max_steps) for each, own in zip(examples, self._own, strict=True)]

    @property
    def holds_anything(self) -> bool:
        """Whether steps are given anything at all."""
        return bool(self._memory)

    def of_member(self, member: int) -> list[Tensor]:
        """Return the memory ``[R, ...]`` of what a member is given, of two dimensions or more."""
        return [each[member] if own else each for each, own in zip(self._memory, self._own, strict=True)]

    def write(self, given: Sequence[StepArguments]) -> None:
        """Let the first steps be given this."""
        for memory, own, *rows in zip(self._memory, self._own, *map(self._tensors, given), strict=True):
            if own:
                memory[:, : len(rows)] = torch.stack(rows, 1).view(len(memory), len(rows), *memory.shape[2:])
            else:
                memory[: len(rows)] = torch.stack(rows).view(len(rows), *memory.shape[1:])

    def _tensors(self, given: StepArguments) -> list[Tensor]:
        return [*given.noise] if self._same_rows else [*given.noise, *tensors_of(given.batch)]


def are_own(batch: StepBatch) -> list[bool]:
    """Tell of each tensor of a batch whether members have their own, along its first dimension."""
    pairs = zip(batch.data, batch.dims, strict=True)
    own = [dim == 0 for each, dim in pairs for leaf in pytree.tree_leaves(each) if isinstance(leaf, Tensor)]
    return own if batch.row_weights is None else [*own, True]


def _memory(example: Tensor, own: bool, max_steps: int) -> Tensor:
    """Return memory ``[R, ...]`` or ``[C, R, ...]``, filled with the example."""
    places = int(own)
    rows = example.detach().unsqueeze(places).repeat(*(1,) * places, max_steps, *(1,) * (example.ndim - places))
    return rows if rows.ndim > places + 1 else rows.unsqueeze(-1)
