"""Blocks of draws and rows: which are evaluated together, and where their values belong."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.program.batched_noise import batchable_draws
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.types import Data
from bnnzoo.engine.failures import FailuresAsNaN, is_numerical
from bnnzoo.engine.pytree import tree_leaves
from bnnzoo.engine.torch_private import DispatchMode

__all__ = [
    "RANDOM_ROWS",
    "Arrays",
    "BlockArrays",
    "Blocks",
    "Function",
    "Tile",
    "TreeVariable",
    "block_length",
    "draw_blocks",
    "largest_tensor",
    "looped",
    "nodes_or_nan",
    "or_nan",
    "plan",
    "rows_of",
    "rows_together",
    "tiles_of",
    "vmapped",
    "widened",
]

type Arrays = dict[Any, NDArray[Any]]
type Function = Callable[..., dict[Any, Tensor]]
"""Values by name, or by :class:`TreeVariable`."""

MAX_ELEMENTS = 2**20  # of the largest tensor inside one block: 8 MiB in float64; larger ones ran slower
MAX_ROWS = 4096
MAX_ON_GPU = 2**26  # elements, and rows, of a block on a GPU, which takes about as long for few as for many
MAX_RANDOM_ELEMENTS = 2**18  # of the largest tensor inside one block: 2 MiB in float64, which fits a cache
RANDOM_ROWS = 256  # at most so many rows share a random stream, whatever else is chunked
BLOCK_BYTES = 2**24  # of the values of such rows at all draws: a prediction to a store holds no fewer


class TreeVariable(NamedTuple):
    """Name of a variable in a group of the tree."""

    group: str
    name: str


@dataclass(frozen=True)
class Blocks:
    """How many draws and rows are evaluated together; ``rows`` is None where the rows must stay together."""

    draws: int
    rows: int | None


class _LargestTensor(DispatchMode):
    """Record the number of elements of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel: int = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.numel = max([self.numel, *sizes])
        return result


def plan(
    function: Function, theta: Tensor, data: Data, num_rows: int, *, splits: bool, chunk_size: int | None
) -> Blocks:
    """Choose blocks whose largest tensor has at most ``MAX_ELEMENTS`` elements (``MAX_ON_GPU``), or ``chunk_size`` draws x rows.

    Parameters
    ----------
    function : callable
        ``(theta[P], *data) -> {name: Tensor}``, evaluated once at ``theta`` to see how large its tensors are.
    theta : Tensor [P]
    data : tuple
    num_rows : int
    splits : bool
        Whether the rows may be split.
    chunk_size : int, optional
        Draws x rows of a block; overrules the measurement.
    """
    most_rows, most = (MAX_ON_GPU, MAX_ON_GPU) if theta.is_cuda else (MAX_ROWS, MAX_ELEMENTS)
    rows = min(num_rows, most_rows) if splits else num_rows
    if chunk_size is not None:
        rows = min(rows, chunk_size) if splits else rows
        return Blocks(max(1, chunk_size // max(rows, 1)), rows if splits else None)
    while splits and rows > 1 and largest_tensor(function, theta, data, rows, num_rows) > most:
        rows //= 2
    return Blocks(max(1, most // largest_tensor(function, theta, data, rows, num_rows)), rows if splits else None)


def rows_together(moments: Mapping[str, Tensor], num_rows: int, num_draws: int) -> int:
    """Return how many rows share a random stream: fewer where their moments ``[B, ...]`` at all draws take much memory.

    Examples
    --------
    >>> rows_together({"mean": torch.zeros(500)}, 500, 1000), rows_together({"probs": torch.zeros(500, 1000)}, 500, 1000)
    (256, 4)
    """
    per_row = num_draws * sum(each.nbytes for each in moments.values()) // max(num_rows, 1)
    return max(1, min(RANDOM_ROWS, BLOCK_BYTES // max(per_row, 1)))


def draw_blocks(
    function: Function, theta: Tensor, data: Data, num_rows: int, *, splits: bool, together: int = RANDOM_ROWS
) -> Blocks:
    """Return the blocks in which random numbers are drawn; they depend on model, data, device and number of draws alone.

    Parameters
    ----------
    function, theta, data, num_rows, splits
        As for :func:`plan`.
    together : int
        From :func:`rows_together`.
    """
    rows = min(num_rows, together) if splits else num_rows
    with batchable_draws():
        largest = largest_tensor(function, theta, data, rows, num_rows)
    return Blocks(max(1, (MAX_ON_GPU if theta.is_cuda else MAX_RANDOM_ELEMENTS) // largest), rows if splits else None)


def largest_tensor(function: Function, theta: Tensor, data: Data, rows: int, num_rows: int) -> int:
    """Return the number of elements of the largest tensor that a function makes of the first ``rows`` rows."""
    part = rows_of(data, slice(0, rows), num_rows)  # which is no tensor of the function's, however rows are cut
    with isolated(0, theta.device), torch.no_grad(), _LargestTensor() as largest:
        or_nan(function, theta, *part)
    return int(largest.numel)


class BlockArrays:
    """Arrays ``[M, B, ...]`` filled block by block, allocated when their shape is first seen.

    Parameters
    ----------
    num_draws : int
        M.
    num_rows : int or None
        B where blocks are parts of the rows; None where each has all of them.
    """

    def __init__(self, num_draws: int, num_rows: int | None) -> None:
        self._num_draws, self._num_rows = num_draws, num_rows
        self.arrays: Arrays = {}
        self._lock = Lock()

    def places(self, tile: "Tile") -> dict[Any, Tensor]:
        """Return where the values of a block belong, to be filled in place; nothing if later blocks replace some of them."""
        if (tile.kept_draws, tile.kept_rows) != (tile.draws, tile.rows):
            return {}
        return {name: torch.from_numpy(array[self._place(array, tile)]) for name, array in self.arrays.items()}

    def write(self, values: dict[Any, Tensor], tile: "Tile", places: Mapping[Any, Tensor] = {}) -> None:
        """Put the values ``[len(draws), len(rows), ...]`` of a block in their place, but for those that a later one replaces.

        Values that are ``places`` are there already.
        """
        for name, value in values.items():
            if name in places and value is places[name]:
                continue
            array = value.cpu().numpy()
            if name not in self.arrays:
                tail = (self._num_rows, *array.shape[2:]) if self._splits(array) else array.shape[1:]
                self.arrays[name] = np.empty((self._num_draws, *tail), dtype=array.dtype)
            draws, rows = (slice(0, each.stop - each.start) for each in (tile.kept_draws, tile.kept_rows))
            part = array[(draws, rows) if self._splits(array) else (draws,)]
            with self._lock if self.arrays[name].dtype.kind in "iu" else nullcontext():
                self.arrays[name] = widened(self.arrays[name], part)
                self.arrays[name][self._place(array, tile)] = part

    def _splits(self, array: NDArray[Any]) -> bool:
        return self._num_rows is not None and array.ndim > 1

    def _place(self, array: NDArray[Any], tile: "Tile") -> tuple[slice, ...]:
        return (tile.kept_draws, tile.kept_rows) if self._splits(array) else (tile.kept_draws,)


def widened(array: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return an array that holds such values as well: classes are whole numbers until a draw is lost, which is NaN."""
    return array.astype(values.dtype) if array.dtype.kind in "iu" and values.dtype.kind == "f" else array


class Tile(NamedTuple):
    """The draws and rows of a block, and those of them that no later block has as well."""

    draws: slice
    rows: slice
    kept_draws: slice
    kept_rows: slice

    def from_row(self, start: int) -> "Tile":
        """Return the tile among the rows from ``start`` on."""
        rows, kept = (slice(each.start - start, each.stop - start) for each in (self.rows, self.kept_rows))
        return self._replace(rows=rows, kept_rows=kept)


def tiles_of(num_draws: int, num_rows: int, blocks: Blocks) -> list[Tile]:
    """Return the draws and rows of every block, all of one shape; the last ones overlap those before where need be."""
    draws, rows = _slices(num_draws, blocks.draws), _slices(num_rows, blocks.rows or num_rows)
    parts = list(zip(rows, _until_next(rows), strict=True))
    return [
        Tile(own, part, kept, kept_part)
        for own, kept in zip(draws, _until_next(draws), strict=True)
        for part, kept_part in parts
    ]


def _until_next(slices: Sequence[slice]) -> list[slice]:
    """Return slices that end where the next one begins."""
    ends = [each.start for each in slices[1:]] + [slices[-1].stop]
    return [slice(each.start, end) for each, end in zip(slices, ends, strict=True)]


def block_length(total: int, size: int) -> int:
    """Return the length, at most ``size``, of the equal slices that cover ``total``."""
    count = max(1, -(-total // max(size, 1)))
    return -(-total // count)


def _slices(total: int, size: int) -> list[slice]:
    """Cover ``total`` by slices of one length of at most ``size``."""
    count, length = max(1, -(-total // max(size, 1))), block_length(total, size)
    return [slice(min(i * length, total - length), min(i * length, total - length) + length) for i in range(count)]


def rows_of(data: Data, rows: slice, num_rows: int) -> Data:
    """Return the model's arguments with only some of the rows."""
    if rows == slice(0, num_rows):
        return data
    return select(data, rows, num_rows)


def vmapped(function: Function, num_arguments: int, randomness: str = "error") -> Function:
    """Return the function batched over draws, not over its further arguments."""
    batched: Function = vmap(function, in_dims=(0, *(None for _ in range(num_arguments))), randomness=randomness)
    return batched


def looped(function: Function) -> Function:
    """Return the function evaluated at one draw after the other, NaN where it fails numerically."""

    def loop(theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        each = [or_nan(function, row, *data) for row in theta]
        return {name: torch.stack([values[name] for values in each]) for name in each[0]}

    return loop


def nodes_or_nan(density: LogDensity, theta: Tensor, *data: Any) -> dict[str, Node]:
    """Return the nodes of a model, of a draw at which factorisations may fail as of any other."""
    return or_nan(density.nodes, theta, *data)


def or_nan[Value](function: Callable[..., Value], theta: Tensor, *data: Any) -> Value:
    """Return the values of a function, NaN where it fails numerically at this draw."""
    try:
        return function(theta, *data)
    except (RuntimeError, NumericalFailure) as error:
        if not is_numerical(error):
            raise
        with FailuresAsNaN():
            try:
                return function(theta, *data)
            except Exception:  # a lost class that is counted, or chooses among components, is refused there
                raise error from None
