"""Functions of ``theta`` evaluated over many draws and rows, a block at a time."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bnnzoo.core.density import LogDensity
from bnnzoo.core.lowering import Lowered
from bnnzoo.core.minibatch import select
from bnnzoo.core.replay import isolated
from bnnzoo.core.types import Data

__all__ = ["Arrays", "Blocks", "can_split_rows", "draw_blocks", "evaluate", "evaluate_random", "plan"]

type Arrays = dict[str, NDArray[Any]]
type Function = Callable[..., dict[str, Tensor]]

MAX_ELEMENTS = 2**20  # of the largest tensor inside one block: 8 MiB in float64; larger ones ran slower
MAX_ROWS = 4096
RANDOM_BLOCK = (64, 256)  # at most so many draws x rows share a random stream, whatever else is chunked
MIN_TILES_TO_LOWER = 64  # tracing takes about as long as so many evaluations


@dataclass(frozen=True)
class Blocks:
    """How many draws and rows are evaluated together; ``rows`` is None where the rows must stay together."""

    draws: int
    rows: int | None


class _LargestTensor(TorchDispatchMode):
    """Record the number of elements of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numel: int = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.numel = max([self.numel, *sizes])
        return result


def can_split_rows(density: LogDensity, theta: Tensor, data: Data, num_rows: int) -> bool:
    """Tell whether the model gives a row the same conditional moments alone as among the others, at ``theta[P]``.

    Most models do. One that reads the number of rows, or mixes them, does not, and is evaluated on all rows at once.
    """
    whole = density.conditional(theta, *data)
    for rows in (torch.arange(1), torch.arange(num_rows // 2, num_rows)):
        try:
            part = density.conditional(theta, *select(data, rows, num_rows))
        except Exception:  # the model's own code may raise anything on fewer rows: then they cannot be split
            return False
        pairs = [(part[name], whole[name]) for name in whole]
        if not all(a.shape[:1] == rows.shape and torch.allclose(a, b[rows], equal_nan=True) for a, b in pairs):
            return False
    return True


def plan(
    function: Function, theta: Tensor, data: Data, num_rows: int, *, splits: bool, chunk_size: int | None
) -> Blocks:
    """Choose blocks whose largest tensor has at most ``MAX_ELEMENTS`` elements, or ``chunk_size`` draws x rows.

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
    rows = min(num_rows, MAX_ROWS) if splits else num_rows
    if chunk_size is not None:
        rows = min(rows, chunk_size) if splits else rows
        return Blocks(max(1, chunk_size // max(rows, 1)), rows if splits else None)
    while splits and rows > 1 and _largest(function, theta, data, rows, num_rows) > MAX_ELEMENTS:
        rows //= 2
    return Blocks(max(1, MAX_ELEMENTS // _largest(function, theta, data, rows, num_rows)), rows if splits else None)


def _largest(function: Function, theta: Tensor, data: Data, rows: int, num_rows: int) -> int:
    with isolated(0, theta.device), torch.no_grad(), _LargestTensor() as largest:
        function(theta, *_rows_of(data, slice(0, rows), num_rows))
    return int(largest.numel)


def evaluate(function: Function, theta: Tensor, data: Data, num_rows: int, blocks: Blocks) -> Arrays:
    """Evaluate a pure function at ``theta[M, P]`` block by block.

    Parameters
    ----------
    function : callable
        ``(theta[P], *data) -> {name: Tensor[B, ...]}``.
    theta : Tensor [M, P]
    data : tuple
        Arguments of the model; tensors with ``num_rows`` rows are split where ``blocks`` says so.
    num_rows : int
    blocks : Blocks

    Returns
    -------
    dict of str to ndarray [M, B, ...]
    """
    tiles = list(_tiles(theta, num_rows, blocks))
    batched = _batched(function, len(data), len(tiles))
    out = _Results(len(theta), num_rows if blocks.rows else None)
    for draws, rows in tiles:
        # the last block is filled up with its own first draw: one shape means one trace
        padded = _padded(theta[draws], min(blocks.draws, len(theta)))
        with torch.no_grad():
            out.write(batched(padded, *_rows_of(data, rows, num_rows)), draws, rows)
    return out.arrays


def evaluate_random(function: Function, theta: Tensor, data: Data, num_rows: int, blocks: Blocks, seed: int) -> Arrays:
    """Evaluate a function that draws random numbers at ``theta[M, P]``; each block has a random stream of its own.

    The streams hang on ``seed`` and the place of the block, so the blocks must not depend on what else is chunked: use
    :func:`draw_blocks`. The global random stream is left as it was.

    Parameters
    ----------
    function, theta, data, num_rows, blocks
        As for :func:`evaluate`.
    seed : int

    Returns
    -------
    dict of str to ndarray [M, B, ...]
    """
    out = _Results(len(theta), num_rows if blocks.rows else None)
    for index, (draws, rows) in enumerate(_tiles(theta, num_rows, blocks)):
        inputs = _rows_of(data, rows, num_rows)
        stream = int(np.random.SeedSequence([seed % 2**63, index]).generate_state(1)[0])
        with isolated(stream, theta.device), torch.no_grad():
            out.write(_drawn(function, theta[draws], inputs, stream), draws, rows)
    return out.arrays


def draw_blocks(function: Function, theta: Tensor, data: Data, num_rows: int, *, splits: bool) -> Blocks:
    """Return the blocks in which random numbers are drawn; they depend on the model and its data alone.

    Parameters
    ----------
    function, theta, data, num_rows, splits
        As for :func:`plan`.
    """
    rows = min(num_rows, RANDOM_BLOCK[1]) if splits else num_rows
    largest = _largest(function, theta, data, rows, num_rows)
    return Blocks(max(1, min(RANDOM_BLOCK[0], MAX_ELEMENTS // largest)), rows if splits else None)


class _Results:
    """Arrays ``[M, B, ...]`` filled block by block, allocated when their shape is first seen."""

    def __init__(self, num_draws: int, num_rows: int | None) -> None:
        self._num_draws, self._num_rows = num_draws, num_rows
        self.arrays: Arrays = {}

    def write(self, values: dict[str, Tensor], draws: slice, rows: slice) -> None:
        for name, value in values.items():
            array = value[: draws.stop - draws.start].cpu().numpy()
            split = self._num_rows is not None and array.ndim > 1
            if name not in self.arrays:
                tail = (self._num_rows, *array.shape[2:]) if split else array.shape[1:]
                self.arrays[name] = np.empty((self._num_draws, *tail), dtype=array.dtype)
            self.arrays[name][(draws, rows) if split else (draws,)] = array


class _OutOfPlaceRandomness(TorchFunctionMode):
    """Turn ``torch.empty(...).normal_()``, by which torch's distributions draw, into what vmap can batch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.normal_:
            return _scaled_noise(torch.randn_like(args[0]), *args[1:], **kwargs)
        if func is Tensor.uniform_:
            return _stretched(torch.rand_like(args[0]), *args[1:], **kwargs)
        if func is Tensor.exponential_:
            return -torch.log1p(-torch.rand_like(args[0])) / (args[1] if len(args) > 1 else kwargs.get("lambd", 1.0))
        if func is Tensor.cauchy_:
            return _scaled_noise(torch.tan(torch.pi * (torch.rand_like(args[0]) - 0.5)), *args[1:], **kwargs)
        return func(*args, **kwargs)


def _scaled_noise(noise: Tensor, loc: float | int = 0.0, scale: float | int = 1.0) -> Tensor:
    return loc + scale * noise


def _stretched(noise: Tensor, low: float | int = 0.0, high: float | int = 1.0) -> Tensor:
    return low + (high - low) * noise


def _tiles(theta: Tensor, num_rows: int, blocks: Blocks) -> Iterator[tuple[slice, slice]]:
    step = blocks.rows or max(num_rows, 1)
    for start in range(0, len(theta), blocks.draws):
        draws = slice(start, min(start + blocks.draws, len(theta)))
        for first in range(0, max(num_rows, 1), step):
            yield draws, slice(first, min(first + step, num_rows))


def _rows_of(data: Data, rows: slice, num_rows: int) -> Data:
    if rows == slice(0, num_rows):
        return data
    return select(data, torch.arange(rows.start, rows.stop), num_rows)


def _padded(theta: Tensor, length: int) -> Tensor:
    return torch.cat([theta, theta[:1].expand(length - len(theta), -1)]) if len(theta) < length else theta


def _batched(function: Function, num_arguments: int, num_tiles: int) -> Function:
    """Return the function batched over draws: traced where that pays, else run as it is, else looped over draws."""
    batched = _vmapped(function, num_arguments)
    if num_tiles >= MIN_TILES_TO_LOWER:
        lowered = Lowered(batched, fallback=_looped(function))
        return lambda *args: lowered.specialize(*args, num_calls=float(num_tiles))(*args)

    def evaluate_tile(*args: Any) -> dict[str, Tensor]:
        try:
            return batched(*args)
        except RuntimeError:  # some operations of the user's model may be unknown to vmap
            return _looped(function)(*args)

    return evaluate_tile


def _vmapped(function: Function, num_arguments: int, randomness: str = "error") -> Function:
    batched: Function = vmap(function, in_dims=(0, *(None for _ in range(num_arguments))), randomness=randomness)
    return batched


def _looped(function: Function) -> Function:
    def loop(theta: Tensor, *data: Any) -> dict[str, Tensor]:
        each = [function(row, *data) for row in theta]
        return {name: torch.stack([values[name] for values in each]) for name in each[0]}

    return loop


def _drawn(function: Function, theta: Tensor, inputs: Data, stream: int) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings(), _OutOfPlaceRandomness():
            warnings.simplefilter("error")  # torch only warns where it batches a sampler wrongly
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return _vmapped(function, len(inputs), "different")(theta, *inputs)
    except (RuntimeError, UserWarning):  # some distributions draw by operations that vmap does not know
        torch.manual_seed(stream)
        return _looped(function)(theta, *inputs)
