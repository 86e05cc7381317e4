"""Pytrees of tensors kept as few tensors."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bnnzoo.engine import pytree

__all__ = ["Packed"]


class Packed:
    """A pytree of tensors kept as few tensors: leaves of one shape and dtype are stacked.

    A compiled graph pays for every tensor that passes its border, so the state of a loop crosses it packed.

    Examples
    --------
    >>> import torch
    >>> packed = Packed({"a": torch.zeros(3), "b": torch.ones(3), "n": torch.tensor(2)})
    >>> len(packed.groups), packed.value["b"].tolist()
    (2, [1.0, 1.0, 1.0])
    """

    def __init__(self, value: Any) -> None:
        leaves, spec = pytree.tree_flatten(value)
        kinds = [(leaf.shape, leaf.dtype) for leaf in leaves]
        members = [[i for i, k in enumerate(kinds) if k == kind] for kind in dict.fromkeys(kinds)]
        self.groups = [torch.stack([leaves[i] for i in group]) for group in members]
        self.layout = (spec, members)

    @property
    def value(self) -> Any:
        """The tree itself, as views of the packed tensors."""
        spec, members = self.layout
        leaves: dict[int, Tensor] = {}
        for group, places in zip(self.groups, members, strict=True):
            leaves.update(zip(places, group.unbind(), strict=True))
        return pytree.tree_unflatten([leaves[i] for i in range(len(leaves))], spec)


def _unflatten_packed(groups: Iterable[Tensor], layout: Any) -> Packed:
    packed = Packed.__new__(Packed)
    packed.groups, packed.layout = list(groups), layout
    return packed


pytree.register_pytree_node(Packed, lambda packed: (packed.groups, packed.layout), _unflatten_packed)
