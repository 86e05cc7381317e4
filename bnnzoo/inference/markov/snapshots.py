"""The state of a loop as named arrays and back, so that it can be written down without pickling anything."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from bnnzoo.inference.markov.streams import ChainStreams
from bnnzoo.lowering.lowered import LoopStep

__all__ = ["Stepping", "from_arrays", "restore_loop", "snapshot_of_loop", "to_arrays"]

type Arrays = dict[str, NDArray[Any]]


@runtime_checkable
class Stepping(Protocol):
    """A loop with random streams and one compiled step, whose other state is in attributes it names."""

    @property
    def state_names(self) -> tuple[str, ...]: ...
    @property
    def streams(self) -> ChainStreams: ...
    @property
    def step(self) -> LoopStep: ...


def snapshot_of_loop(loop: Stepping) -> Arrays:
    """Return all that :func:`restore_loop` needs to go on with the very next draw."""
    return to_arrays(_state(loop))


def restore_loop(loop: Stepping, snapshot: Mapping[str, NDArray[Any]]) -> None:
    """Take a loop to where one of the same chains was when the snapshot was taken."""
    state = from_arrays(snapshot, like=_state(loop))
    loop.streams.restore(state.pop("streams"))
    loop.step.num_calls = state.pop("calls")
    for name, value in state.items():
        setattr(loop, name, value)


def _state(loop: Stepping) -> dict[str, Any]:
    own = {name: getattr(loop, name) for name in loop.state_names}
    return own | {"streams": loop.streams.state(), "calls": loop.step.num_calls}


def to_arrays(state: Mapping[str, Any]) -> Arrays:
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
    """Return trees of the structure, and with leaves of the kinds, of ``like``, with the values of ``arrays``.

    Examples
    --------
    >>> from_arrays({"count.0": np.array(3)}, like={"count": 0})
    {'count': 3}
    """
    return {name: _tree(arrays, name, tree) for name, tree in like.items()}


def _tree(arrays: Mapping[str, NDArray[Any]], name: str, like: Any) -> Any:
    leaves, spec = pytree.tree_flatten(like)
    return pytree.tree_unflatten([_leaf(arrays[f"{name}.{i}"], leaf) for i, leaf in enumerate(leaves)], spec)


def _leaf(array: NDArray[Any], like: Any) -> Any:
    if isinstance(like, Tensor):
        return torch.from_numpy(np.array(array)).to(like)
    return np.array(array) if isinstance(like, np.ndarray) else type(like)(array)
