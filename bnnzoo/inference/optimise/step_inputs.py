"""Inputs of a chunk of native steps, in memory that it reads: random numbers, and rows that change."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.inference.optimise.training_run import StepArguments, tensors_of

__all__ = ["StepInputs"]


class StepInputs:
    """Memory for the random numbers and rows of some steps.

    Parameters
    ----------
    first : StepArguments
        What the first step is given, of the same shapes as all others.
    same_rows : bool
        Whether every step sees the same rows, which then need no memory here.
    max_steps : int

    Attributes
    ----------
    shapes : tuple of tuple of int
        Shape of each tensor of a step as one member sees it.
    """

    def __init__(self, first: StepArguments, same_rows: bool, max_steps: int) -> None:
        self._same_rows, self._own = same_rows, _are_own(first, same_rows)
        examples = self._tensors(first)
        self.shapes = shapes_of(first, same_rows)
        self._memory = [_memory(each, own, max_steps) for each, own in zip(examples, self._own, strict=True)]

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


def shapes_of(first: StepArguments, same_rows: bool) -> tuple[tuple[int, ...], ...]:
    """Return the shape of each tensor that a step gives to one member."""
    tensors = [*first.noise] if same_rows else [*first.noise, *tensors_of(first.batch)]
    return tuple(tuple(each.shape[own:]) for each, own in zip(tensors, _are_own(first, same_rows), strict=True))


def _are_own(first: StepArguments, same_rows: bool) -> list[bool]:
    """Tell of each tensor of a step whether members have their own, along its first dimension."""
    noise = [True] * len(first.noise)
    if same_rows:
        return noise
    pairs = zip(first.batch.data, first.batch.dims, strict=True)
    own = [dim == 0 for each, dim in pairs for leaf in pytree.tree_leaves(each) if isinstance(leaf, Tensor)]
    return [*noise, *(own if first.batch.row_weights is None else [*own, True])]


def _memory(example: Tensor, own: bool, max_steps: int) -> Tensor:
    """Return memory ``[R, ...]`` or ``[C, R, ...]``, filled with the example."""
    places = int(own)
    rows = example.detach().unsqueeze(places).repeat(*(1,) * places, max_steps, *(1,) * (example.ndim - places))
    return rows if rows.ndim > places + 1 else rows.unsqueeze(-1)
