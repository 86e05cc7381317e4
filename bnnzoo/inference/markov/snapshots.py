"""The state of a loop as named arrays and back, so that it can be stored without pickling anything."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.engine import pytree

__all__ = ["from_arrays", "to_arrays"]


def to_arrays(state: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the leaves of ``state``, trees of tensors and numbers by name, as arrays named ``name.0``, ``name.1``, ...

    Examples
    --------
    >>> import torch
    >>> sorted(to_arrays({"scale": torch.ones(2), "count": 3}))
    ['count.0', 'scale.0']
    """
    return {
        f"{name}.{i}": leaf.detach().cpu().numpy().copy() if isinstance(leaf, Tensor) else np.array(leaf)
        for name, tree in state.items()
        for i, leaf in enumerate(pytree.tree_leaves(tree))
    }


def from_arrays(arrays: Mapping[str, NDArray[Any]], like: Mapping[str, Any]) -> dict[str, Any]:
    """Return trees with the structure and the leaf types of ``like`` and the values of ``arrays``.

    Examples
    --------
    >>> from_arrays({"count.0": np.array(3)}, like={"count": 0})
    {'count': 3}
    """
    found = {}
    for name, tree in like.items():
        leaves, spec = pytree.tree_flatten(tree)
        values: list[Any] = []
        for i, leaf in enumerate(leaves):
            array = np.array(arrays[f"{name}.{i}"])
            if isinstance(leaf, Tensor):
                values.append(torch.from_numpy(array).to(leaf))
            else:
                values.append(array if isinstance(leaf, np.ndarray) else type(leaf)(array))
        found[name] = pytree.tree_unflatten(values, spec)
    return found
