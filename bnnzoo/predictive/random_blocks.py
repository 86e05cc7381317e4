"""Draws of y from a model at many draws of ``theta`` and rows, one block at a time."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnnzoo.core.program.batched_noise import batchable_draws, refuse_unsafe_warnings
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.surroundings import isolated, reseed
from bnnzoo.core.program.turns import aside
from bnnzoo.core.types import Data
from bnnzoo.engine.cores import in_threads, one_arithmetic_thread
from bnnzoo.predictive.block_graphs import block_graph
from bnnzoo.predictive.evaluate import (
    MAX_ON_GPU,
    MIN_TILES_TO_LOWER,
    Arrays,
    BlockArrays,
    Blocks,
    Function,
    Tile,
    largest_tensor,
    looped,
    over_draws,
    rows_of,
    tiles_of,
    vmapped,
)

__all__ = ["BLOCK_BYTES", "RANDOM_ROWS", "Job", "RandomEvaluation", "draw_blocks", "evaluate_random", "rows_together"]

MAX_RANDOM_ELEMENTS = 2**18  # of the largest tensor inside one block: 2 MiB in float64, which fits a cache
RANDOM_ROWS = 256  # at most so many rows share a random stream, whatever else is chunked
BLOCK_BYTES = 2**24  # of the values of such rows at all draws: a prediction to a store holds no fewer
BLOCKS_AT_ONCE = 16  # blocks that a thread takes at a time


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
    example = rows_of(data, tiles[0].rows, num_rows)
    evaluation = RandomEvaluation(function, theta, example, tiles, seed, besides)
    out = BlockArrays(len(theta), num_rows if blocks.rows else None)
    evaluation.fill(out, [Job(n, rows_of(data, tile.rows, num_rows), tile) for n, tile in enumerate(tiles)])
    return out.arrays


class Job(NamedTuple):
    """A block to be evaluated: its number, the arguments of the model for its rows, and where its values belong."""

    number: int
    inputs: Data
    tile: Tile


class RandomEvaluation:
    """Evaluate the blocks of :func:`evaluate_random`, in any order and side by side; the numbers do not depend on it.

    Parameters
    ----------
    function, theta, seed, besides
        As for :func:`evaluate_random`.
    example : tuple
        Arguments of the model for the rows of the first block.
    tiles : list of Tile
        Draws and rows of every block.
    is_repeated : bool
        Whether the blocks will be evaluated again for other rows: few of them are worth a graph then, too, which is torch's
        operations as they are and gives the numbers of the function itself.
    """

    def __init__(
        self,
        function: Function,
        theta: Tensor,
        example: Data,
        tiles: list[Tile],
        seed: int,
        besides: Function | None = None,
        *,
        is_repeated: bool = False,
    ) -> None:
        self._theta, self._seed = theta, int(seed) % 2**63

        def both(*args: Any) -> dict[Any, Tensor]:
            return function(*args) | (besides(*args) if besides else {})

        args = (theta[tiles[0].draws], *example)
        self._is_small = len(args[0]) > 1  # several draws fit a cache: threads would cost more than they save
        is_many = len(tiles) >= MIN_TILES_TO_LOWER
        self._graph = block_graph(both, args, len(tiles) if is_many else 0) if is_many or is_repeated else None
        self._eager = _eager(function, besides, len(example), len(tiles)) if self._graph is None else None

    @property
    def is_apart(self) -> bool:
        """Whether neither the model nor a global random stream takes part, so that other threads may go on meanwhile."""
        return self._graph is not None and self._graph.draws_from_generator

    def fill(self, out: BlockArrays, jobs: Sequence[Job]) -> None:
        """Evaluate blocks and write what they hold; the global random stream is left as it was."""
        threads = one_arithmetic_thread() if self._is_small else nullcontext()
        if self.is_apart:
            with threads, aside():
                self._fill_from(out, jobs[:1])  # allocates the result
                in_threads(
                    partial(self._fill_from, out),
                    [jobs[i : i + BLOCKS_AT_ONCE] for i in range(1, len(jobs), BLOCKS_AT_ONCE)],
                )
            return
        with threads, isolated(self._seed, self._theta.device), torch.no_grad():
            for job in jobs:
                out.write(self._from_global_stream(job), job.tile)

    def _fill_from(self, out: BlockArrays, jobs: Sequence[Job]) -> None:
        assert self._graph is not None
        generator = torch.Generator()
        with torch.no_grad():  # which holds for one thread
            for job in jobs:
                generator.manual_seed(self._stream(job.number))
                places = out.places(job.tile)
                found = self._graph.run(generator, places, self._theta[job.tile.draws], *job.inputs)
                out.write(found, job.tile, places)

    def _from_global_stream(self, job: Job) -> dict[Any, Tensor]:
        stream, theta = self._stream(job.number), self._theta[job.tile.draws]
        reseed(stream, theta.device)
        if self._graph is not None:
            return self._graph.run(torch.default_generator, {}, theta, *job.inputs)
        assert self._eager is not None
        return self._eager(stream, theta, *job.inputs)

    def _stream(self, number: int) -> int:
        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])


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


def _eager(
    function: Function, besides: Function | None, num_arguments: int, num_tiles: int
) -> Callable[..., dict[Any, Tensor]]:
    pure = over_draws(besides, num_arguments, num_tiles) if besides else lambda *_: {}
    return lambda stream, *args: _drawn(function, args[0], args[1:], stream) | pure(*args)


def _drawn(function: Function, theta: Tensor, inputs: Data, stream: int) -> dict[Any, Tensor]:
    with batchable_draws():
        try:
            with warnings.catch_warnings():
                refuse_unsafe_warnings()
                return vmapped(function, len(inputs), "different")(theta, *inputs)
        except (RuntimeError, UserWarning, NumericalFailure):  # some distributions draw by operations unknown to vmap
            reseed(stream, theta.device)
            return looped(function)(theta, *inputs)
