"""Many small tensors kept in few: what the state of a native loop lies in."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from bnnzoo.engine import pytree

__all__ = ["HELD", "HeldTree", "Registers", "Stacks", "TreeRegisters", "holding", "is_short"]

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
            groups.setdefault((number, _held_as(leaf.dtype)) if is_short(leaf.shape) else i, []).append(i)
        self.groups = list(groups.values())
        self._shapes = [leaf.shape for _, leaf in leaves]
        self._dtypes = [leaf.dtype for _, leaf in leaves]
        self.num_tensors = len(groups)

    def pack(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Return the leaves as few tensors, those that hold them already where there are such."""
        held = HELD.get()
        groups = [[leaves[i] for i in group] for group in self.groups]
        return [found if (found := held.get(_ids(group))) is not None else self._joined(group) for group in groups]

    def unpack(self, tensors: Sequence[Tensor], lead: int = 0) -> list[Tensor]:
        """Return the leaves as views; truth values, which are held as integers, are computed.

        ``lead`` is the number of dimensions before those of one copy.
        """
        found = self.views(tensors, lead)
        kinds = enumerate(self._dtypes)
        return [found[i] != 0 if dtype == torch.bool else found[i] for i, dtype in kinds]

    def views(self, tensors: Sequence[Tensor], lead: int = 0) -> dict[int, Tensor]:
        """Return the leaves by number as views, truth values as the integers that hold them."""
        pairs = zip(tensors, self.groups, strict=True)
        return dict(pair for tensor, group in pairs for pair in self._views(tensor, group, lead))

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

    def _joined(self, leaves: list[Tensor], lead: int = 0) -> Tensor:
        if not is_short(leaves[0].shape[lead:]):
            return leaves[0].to(_held_as(leaves[0].dtype))
        ahead = leaves[0].shape[:lead]
        parts = [leaf.to(_held_as(leaf.dtype)).reshape(*ahead, -1) for leaf in leaves]
        # joined with something, since a lone vector would reach a compiled loop as a view, which it takes for its own
        return torch.cat(parts if len(parts) > 1 else [parts[0], parts[0].new_zeros(*ahead, 1)], -1)

    def _views(self, tensor: Tensor, group: list[int], lead: int = 0) -> list[tuple[int, Tensor]]:
        if not is_short(self._shapes[group[0]]):
            return [(group[0], tensor)]
        sizes = [math.prod(self._shapes[i]) for i in group]
        parts = tensor.split(sizes if len(sizes) > 1 else [*sizes, 1], -1)
        ahead = tensor.shape[:lead]
        return [(i, part.reshape((*ahead, *self._shapes[i]))) for i, part in zip(group, parts, strict=False)]


class TreeRegisters(Registers):
    """How a pytree of one copy's tensors is held in few tensors, and those of many copies in tensors ``[C, ...]``.

    Parameters
    ----------
    example : pytree of Tensor
        Of one copy: shapes and types count, values do not.

    Examples
    --------
    >>> import torch
    >>> registers = TreeRegisters({"a": torch.zeros(3), "on": torch.tensor(True)})
    >>> held = registers.packed({"a": torch.ones(2, 3), "on": torch.tensor([True, False])}, lead=1)
    >>> [tuple(tensor.shape) for tensor in held]
    [(2, 4), (2, 2)]
    >>> registers.tree(held, lead=1)["on"].tolist()
    [True, False]
    """

    def __init__(self, example: Any) -> None:
        leaves, self.spec = pytree.tree_flatten(example)
        super().__init__([leaves])
        self.truths = [leaf.dtype == torch.bool for leaf in leaves]

    def tree(self, tensors: Sequence[Tensor], lead: int = 0) -> Any:
        """Return the tree as views of the tensors; truth values are copies."""
        return pytree.tree_unflatten(self.unpack(tensors, lead), self.spec)

    def packed(self, tree: Any, lead: int = 0) -> list[Tensor]:
        """Return the tensors that hold a tree."""
        leaves = pytree.tree_leaves(tree)
        return [self._joined([leaves[i] for i in group], lead) for group in self.groups]

    def write(self, tensors: Sequence[Tensor], tree: Any, lead: int = 0) -> None:
        """Write a tree into the tensors that hold one."""
        leaves = pytree.tree_leaves(tree)
        for i, view in self.views(tensors, lead).items():
            view.copy_(leaves[i])


class HeldTree:
    """A pytree of many copies in tensors ``[C, ...]`` that stay the same: views of them are made once.

    Parameters
    ----------
    registers : TreeRegisters
    tensors : sequence of Tensor
    """

    def __init__(self, registers: TreeRegisters, tensors: Sequence[Tensor]) -> None:
        views = registers.views(tensors, lead=1)
        self._views = [views[i] for i in range(len(views))]
        self._truths, self._spec = registers.truths, registers.spec
        self._tree = None if any(self._truths) else pytree.tree_unflatten(self._views, self._spec)

    def tree(self) -> Any:
        """Return the tree as views; truth values are copies."""
        if self._tree is not None:
            return self._tree
        leaves = [view != 0 if truth else view for view, truth in zip(self._views, self._truths, strict=True)]
        return pytree.tree_unflatten(leaves, self._spec)

    def write(self, tree: Any) -> None:
        """Write a tree; leaves that are views of these tensors are there already."""
        for view, leaf in zip(self._views, pytree.tree_leaves(tree), strict=True):
            if leaf is not view:
                view.copy_(leaf)


class Stacks:
    """How the tensors ``[C, ...]`` of many copies are held in few: those of one shape and type are stacked.

    A graph pays for every tensor that passes its border, and for every operation that takes a tensor apart: here it is one for
    each shape.

    Parameters
    ----------
    example : pytree of Tensor
        Of all copies: shapes and types count, values do not.

    Examples
    --------
    >>> import torch
    >>> stacks = Stacks({"a": torch.zeros(2, 3), "b": torch.ones(2, 3), "n": torch.tensor([1, 2])})
    >>> held = stacks.packed({"a": torch.zeros(2, 3), "b": torch.ones(2, 3), "n": torch.tensor([1, 2])})
    >>> [tuple(tensor.shape) for tensor in held], stacks.tree(held)["n"].tolist()
    ([(2, 2, 3), (2,)], [1, 2])
    """

    def __init__(self, example: Any) -> None:
        leaves, self._spec = pytree.tree_flatten(example)
        kinds = [(leaf.shape, leaf.dtype) for leaf in leaves]
        self._groups = [[i for i, each in enumerate(kinds) if each == kind] for kind in dict.fromkeys(kinds)]

    def tree(self, tensors: Sequence[Tensor]) -> Any:
        """Return the tree as views of the tensors."""
        leaves: dict[int, Tensor] = {}
        for tensor, group in zip(tensors, self._groups, strict=True):
            leaves.update(zip(group, tensor.unbind() if len(group) > 1 else (tensor,), strict=True))
        return pytree.tree_unflatten([leaves[i] for i in range(len(leaves))], self._spec)

    def packed(self, tree: Any) -> list[Tensor]:
        """Return the tensors that hold a tree."""
        leaves = pytree.tree_leaves(tree)
        return [
            torch.stack([leaves[i] for i in group]) if len(group) > 1 else leaves[group[0]] for group in self._groups
        ]

    def chosen(self, condition: Tensor, yes: Sequence[Tensor], no: Sequence[Tensor]) -> list[Tensor]:
        """Return for each copy the tensors of ``yes`` where ``condition[C]`` holds, else those of ``no``."""
        found = []
        for a, b, group in zip(yes, no, self._groups, strict=True):
            after = a.ndim - (2 if len(group) > 1 else 1)
            found.append(b if a is b else torch.where(condition.view(-1, *(1,) * after), a, b))
        return found


def _ids(leaves: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(id(leaf) for leaf in leaves)


def is_short(shape: torch.Size) -> bool:
    """Tell whether a leaf shares its tensor with others, into which it is copied."""
    return len(shape) < 2 and math.prod(shape) < PACKED_BELOW


def _held_as(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if dtype == torch.bool else dtype
