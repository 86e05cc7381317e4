"""Many small tensors kept in few: what the state of a native loop lies in."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

__all__ = ["Registers", "holding"]

HELD: ContextVar[Mapping[tuple[int, ...], Tensor]] = ContextVar("HELD", default=MappingProxyType({}))
"""Tensors of the loop around that hold leaves of its state, by the leaves' identities."""

PACKED_BELOW = 4096
"""Entries from which on a vector keeps its own tensor: packing is a copy."""


@contextmanager
def holding(held: dict[tuple[int, ...], Tensor]) -> Iterator[None]:
    """Let loops inside know which leaves lie in which tensor, so that they go on in there instead of in a copy."""
    token = HELD.set(held)
    try:
        yield
    finally:
        HELD.reset(token)


class Registers:
    """How the leaves of a pytree share tensors: numbers and short vectors of one type lie in one, others have their own.

    Native code pays for every tensor that a loop carries, more than for what is computed of a small model.
    """

    def __init__(self, parts: Sequence[Sequence[Tensor]]) -> None:
        leaves = [(number, leaf) for number, part in enumerate(parts) for leaf in part]
        groups: dict[Any, list[int]] = {}
        for i, (number, leaf) in enumerate(leaves):
            groups.setdefault((number, _held_as(leaf.dtype)) if _is_short(leaf.shape) else i, []).append(i)
        self.groups = list(groups.values())
        self._shapes = [leaf.shape for _, leaf in leaves]
        self._dtypes = [leaf.dtype for _, leaf in leaves]
        self.num_tensors = len(groups)

    def pack(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Return the leaves as few tensors, those that hold them already where there are such."""
        held = HELD.get()
        groups = [[leaves[i] for i in group] for group in self.groups]
        return [found if (found := held.get(_ids(group))) is not None else self._joined(group) for group in groups]

    def unpack(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the leaves as views; truth values, which are held as integers, are computed."""
        found = dict(
            pair for tensor, group in zip(tensors, self.groups, strict=True) for pair in self._views(tensor, group)
        )
        kinds = enumerate(self._dtypes)
        return [found[i] != 0 if dtype == torch.bool else found[i] for i, dtype in kinds]

    def held(self, tensors: Sequence[Tensor], leaves: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        """Return which tensor holds which leaves."""
        return {_ids([leaves[i] for i in group]): tensor for tensor, group in zip(tensors, self.groups, strict=True)}

    def store(self, tensors: Sequence[Tensor], old: Sequence[Tensor], new: Sequence[Tensor]) -> None:
        """Write the leaves that are not those of ``old``."""
        held = {id(leaf) for leaf in old}  # a view of what is about to be overwritten
        values = [
            leaf.clone() if id(leaf) in held and leaf is not o else leaf for leaf, o in zip(new, old, strict=True)
        ]
        for tensor, group in zip(tensors, self.groups, strict=True):
            for i, view in self._views(tensor, group):
                if values[i] is not old[i]:
                    view.copy_(values[i])

    def _joined(self, leaves: list[Tensor]) -> Tensor:
        if not _is_short(leaves[0].shape):
            return leaves[0]
        parts = [leaf.to(_held_as(leaf.dtype)).reshape(-1) for leaf in leaves]
        # joined with something, since a lone vector would reach a compiled loop as a view, which it takes for its own
        return torch.cat(parts if len(parts) > 1 else [parts[0], parts[0].new_zeros(1)])

    def _views(self, tensor: Tensor, group: list[int]) -> list[tuple[int, Tensor]]:
        if not _is_short(self._shapes[group[0]]):
            return [(group[0], tensor)]
        sizes = [math.prod(self._shapes[i]) for i in group]
        parts = tensor.split(sizes if len(sizes) > 1 else [*sizes, 1])
        return [(i, part.reshape(self._shapes[i])) for i, part in zip(group, parts, strict=False)]


def _ids(leaves: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(id(leaf) for leaf in leaves)


def _is_short(shape: torch.Size) -> bool:
    return len(shape) < 2 and math.prod(shape) < PACKED_BELOW


def _held_as(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if dtype == torch.bool else dtype
