"""Draws of y from a model at many draws of ``theta`` and rows, one block at a time."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from bnnzoo.core.numerics import NumericalFailure
from bnnzoo.core.replay import isolated, reseed
from bnnzoo.core.types import Data
from bnnzoo.lowering.compiling import known_random_operations, torchs_random_numbers
from bnnzoo.lowering.lowered import Lowered
from bnnzoo.lowering.simplify import is_random
from bnnzoo.predictive.evaluate import (
    MIN_TILES_TO_LOWER,
    Arrays,
    Blocks,
    Function,
    Results,
    largest_tensor,
    looped,
    over_draws,
    rows_of,
    tiles_of,
    vmapped,
)

__all__ = ["RandomEvaluation", "draw_blocks", "evaluate_random"]

MAX_RANDOM_ELEMENTS = 2**18  # of the largest tensor inside one block: 2 MiB in float64, which fits a cache
RANDOM_ROWS = 256  # at most so many rows share a random stream, whatever else is chunked


def evaluate_random(
    function: Function,
    theta: Tensor,
    data: Data,
    num_rows: int,
    blocks: Blocks,
    seed: int,
    besides: Function | None = None,
) -> Arrays:
    """Evaluate a function that draws random numbers at ``theta[M, P]``; each block has a random stream of its own.

    The streams depend on ``seed`` and the place of the block, so the blocks must not depend on ``chunk_size``: use
    :func:`draw_blocks`. The global random stream is left as it was.

    Parameters
    ----------
    function, theta, data, num_rows, blocks
        As for :func:`evaluate`.
    seed : int
    besides : callable, optional
        Pure function to be evaluated in the same pass; what it shares with ``function`` is then computed once.

    Returns
    -------
    dict of str to ndarray [M, B, ...]
    """
    tiles = tiles_of(len(theta), num_rows, blocks)
    example = rows_of(data, tiles[0][1], num_rows)
    evaluation = RandomEvaluation(function, theta, example, tiles, seed, besides)
    out = Results(len(theta), num_rows if blocks.rows else None)
    with evaluation.running():
        for index, (draws, rows) in enumerate(tiles):
            out.write(evaluation(index, rows_of(data, rows, num_rows)), draws, rows)
    return out.arrays


class RandomEvaluation:
    """Evaluate the blocks of :func:`evaluate_random` one by one, in any order; the numbers do not depend on it.

    Parameters
    ----------
    function, theta, seed, besides
        As for :func:`evaluate_random`.
    example : tuple
        Arguments of the model for the rows of the first block.
    tiles : list of tuple of slice
        Draws and rows of every block.
    """

    def __init__(
        self,
        function: Function,
        theta: Tensor,
        example: Data,
        tiles: list[tuple[slice, slice]],
        seed: int,
        besides: Function | None = None,
    ) -> None:
        self._theta, self._tiles, self._seed = theta, tiles, seed % 2**63
        args = (theta[tiles[0][0]], *example)
        traced = _traced(function, besides, args, len(tiles))
        self._run = traced or _eager(function, besides, len(example), len(tiles))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within this context blocks can be evaluated; the global random stream is left as it was."""
        with isolated(self._seed, self._theta.device), torch.no_grad():
            yield

    def __call__(self, index: int, inputs: Data) -> dict[Any, Tensor]:
        """Return the values of a block, given its number and the arguments of the model for its rows."""
        stream = int(np.random.SeedSequence([self._seed, index]).generate_state(1)[0])
        reseed(stream, self._theta.device)
        return self._run(stream, self._theta[self._tiles[index][0]], *inputs)


def draw_blocks(function: Function, theta: Tensor, data: Data, num_rows: int, *, splits: bool) -> Blocks:
    """Return the blocks in which random numbers are drawn; they depend on the model and its data alone.

    Parameters
    ----------
    function, theta, data, num_rows, splits
        As for :func:`plan`.
    """
    rows = min(num_rows, RANDOM_ROWS) if splits else num_rows
    draws = MAX_RANDOM_ELEMENTS // largest_tensor(function, theta, data, rows, num_rows)
    return Blocks(max(1, draws), rows if splits else None)


class _OutOfPlaceRandomness(TorchFunctionMode):
    """Turn ``torch.empty(...).normal_()``, by which torch's distributions draw, into what vmap can batch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.normal_:
            return _scaled_noise(_like(torch.randn, args[0]), *args[1:], **kwargs)
        if func is Tensor.uniform_:
            return _stretched(_like(torch.rand, args[0]), *args[1:], **kwargs)
        if func is Tensor.exponential_:
            uniform = _like(torch.rand, args[0])
            return -torch.log1p(-uniform) / (args[1] if len(args) > 1 else kwargs.get("lambd", 1.0))
        if func is Tensor.cauchy_:
            return _scaled_noise(torch.tan(torch.pi * (_like(torch.rand, args[0]) - 0.5)), *args[1:], **kwargs)
        return func(*args, **kwargs)


def _like(draw: Callable[..., Tensor], tensor: Tensor) -> Tensor:
    """Draw numbers of a tensor's shape; torch's ``randn_like`` is not among the operations known to be random."""
    return draw(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _scaled_noise(noise: Tensor, loc: float | int = 0.0, scale: float | int = 1.0) -> Tensor:
    return loc + scale * noise


def _stretched(noise: Tensor, low: float | int = 0.0, high: float | int = 1.0) -> Tensor:
    return low + (high - low) * noise


def _traced(
    function: Function, besides: Function | None, example: tuple[Any, ...], num_tiles: int
) -> Callable[..., dict[Any, Tensor]] | None:
    """Return both functions as one graph, or None where that does not pay or its numbers might not be independent."""
    if num_tiles < MIN_TILES_TO_LOWER:
        return None

    def both(*args: Any) -> dict[Any, Tensor]:
        return function(*args) | (besides(*args) if besides else {})

    def batched(*args: Any) -> dict[Any, Tensor]:
        with _OutOfPlaceRandomness():
            return vmapped(both, len(args) - 1, "different")(*args)

    lowered = Lowered(batched)
    try:
        with warnings.catch_warnings(), isolated(0, example[0].device), torch.no_grad():
            _refuse_unsafe_warnings()
            with _RandomOperations() as found:
                batched(*example)
            if not found.operations <= known_random_operations():
                return None
            lowered.specialize(*example, num_calls=0)  # traces and does not compile
    except (RuntimeError, UserWarning, NumericalFailure):
        return None
    with isolated(0, example[0].device), torchs_random_numbers():
        step = lowered.specialize(*example, num_calls=num_tiles)
    return lambda _, *args: step(*args)


def _eager(
    function: Function, besides: Function | None, num_arguments: int, num_tiles: int
) -> Callable[..., dict[Any, Tensor]]:
    pure = over_draws(besides, num_arguments, num_tiles) if besides else lambda *_: {}
    return lambda stream, *args: _drawn(function, args[0], args[1:], stream) | pure(*args)


class _RandomOperations(TorchDispatchMode):
    """Record which operations draw random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_random(func):
            self.operations.add(func.overloadpacket)
        return func(*args, **(kwargs or {}))


def _drawn(function: Function, theta: Tensor, inputs: Data, stream: int) -> dict[Any, Tensor]:
    try:
        with warnings.catch_warnings(), _OutOfPlaceRandomness():
            _refuse_unsafe_warnings()
            return vmapped(function, len(inputs), "different")(theta, *inputs)
    except (RuntimeError, UserWarning, NumericalFailure):  # some distributions draw by operations unknown to vmap
        reseed(stream, theta.device)
        return looped(function)(theta, *inputs)


def _refuse_unsafe_warnings() -> None:
    """Turn torch's warnings into errors: torch merely warns when it batches a sampler wrongly."""
    warnings.simplefilter("error", UserWarning)
    warnings.filterwarnings("ignore", message="There is a performance drop")
