"""A function of ``theta`` at many draws and rows, one block at a time."""

import warnings
from collections.abc import Callable, Sequence
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
from bnnzoo.engine.choose import MIN_BLOCKS_TO_TRACE, asked_for
from bnnzoo.engine.cores import in_threads, one_arithmetic_thread
from bnnzoo.predictive.block_graphs import block_graph
from bnnzoo.predictive.blocks import Arrays, BlockArrays, Blocks, Function, Tile, looped, rows_of, tiles_of, vmapped

__all__ = ["Job", "Sweep", "evaluate"]

BLOCKS_AT_ONCE = 16  # that a thread takes at a time


def evaluate(function: Function, theta: Tensor, data: Data, num_rows: int, blocks: Blocks, seed: int = 0) -> Arrays:
    """Evaluate a function at ``theta[M, P]`` and all rows, block by block.

    Parameters
    ----------
    function : callable
        ``(theta[P], *data) -> {name: Tensor[B, ...]}``.
    theta : Tensor [M, P]
    data : tuple
        Arguments of the model; tensors with ``num_rows`` rows are split where ``blocks`` says so.
    num_rows : int
    blocks : Blocks
    seed : int
        Of the random numbers of a function that draws some.

    Returns
    -------
    dict of str to ndarray [M, B, ...]
    """
    read = partial(rows_of, data, num_rows=num_rows)
    return Sweep(function, theta, read, num_rows, blocks, seed)(read)


class Job(NamedTuple):
    """A block to be evaluated: its number, the arguments of the model for its rows, and where its values belong."""

    number: int
    inputs: Data
    tile: Tile


class Sweep:
    """A function at many draws and rows: its blocks are evaluated in any order and side by side.

    Each block has a random stream of its own, which depends on ``seed`` and the place of the block: where the function draws
    random numbers, the blocks must not depend on ``chunk_size``, as those of :func:`bnnzoo.predictive.blocks.draw_blocks` do
    not. The global random stream is left as it was. The environment variable ``BNNZOO_ENGINE`` chooses how blocks are evaluated,
    as it does for fits.

    Parameters
    ----------
    function : callable
        ``(theta[P], *data) -> {name: Tensor[B, ...]}``, which may draw random numbers.
    theta : Tensor [M, P]
    read : callable
        Returns the arguments of the model for a slice of rows; asked for those of the first block.
    num_rows : int
    blocks : Blocks
    seed : int
    besides : callable, optional
        Pure function to be evaluated in the same pass; what it shares with ``function`` is then computed once.
    is_repeated : bool
        Whether the blocks will be evaluated again for other rows: few of them are worth a graph then, too, which is torch's
        operations as they are and gives the numbers of the function itself.
    """

    def __init__(
        self,
        function: Function,
        theta: Tensor,
        read: Callable[[slice], Data],
        num_rows: int,
        blocks: Blocks,
        seed: int = 0,
        besides: Function | None = None,
        *,
        is_repeated: bool = False,
    ) -> None:
        self._parts = [function] if besides is None else [function, besides]
        self._theta, self._seed = theta, int(seed) % 2**63
        self._num_rows = num_rows if blocks.rows else None
        self.tiles = tiles_of(len(theta), num_rows, blocks)
        args = (theta[self.tiles[0].draws], *read(self.tiles[0].rows))
        self._is_small = len(args[0]) > 1  # several draws fit a cache: threads would cost more than they save
        engine = asked_for("auto")
        is_many = len(self.tiles) >= MIN_BLOCKS_TO_TRACE or engine != "auto"
        self._graph = None
        if engine != "python" and (is_many or is_repeated):
            self._graph = block_graph(self._whole, args, len(self.tiles) if is_many else 0, engine)

    @property
    def is_apart(self) -> bool:
        """Whether neither the model nor a global random stream takes part, so that other threads may go on meanwhile."""
        return self._graph is not None and self._graph.draws_from_generator

    def __call__(self, read: Callable[[slice], Data]) -> Arrays:
        """Return the values ``[M, B, ...]`` at all rows."""
        out = BlockArrays(len(self._theta), self._num_rows)
        self.fill(out, [Job(number, read(tile.rows), tile) for number, tile in enumerate(self.tiles)])
        return out.arrays

    def fill(self, out: BlockArrays, jobs: Sequence[Job]) -> None:
        """Evaluate some of the blocks and write what they hold."""
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
        found: dict[Any, Tensor] = {}
        for part in self._parts:  # each alone, so that how one can be evaluated does not change what the other draws
            found |= _evaluated(part, stream, theta, job.inputs)
        return found

    def _whole(self, *args: Any) -> dict[Any, Tensor]:
        found: dict[Any, Tensor] = {}
        for part in self._parts:
            found |= part(*args)
        return found

    def _stream(self, number: int) -> int:
        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])


def _evaluated(function: Function, stream: int, theta: Tensor, inputs: Data) -> dict[Any, Tensor]:
    """Evaluate a function at some draws together or, where vmap does not know an operation or a draw fails, one by one."""
    with batchable_draws():
        try:
            with warnings.catch_warnings():
                refuse_unsafe_warnings()
                return vmapped(function, len(inputs), "different")(theta, *inputs)
        except (RuntimeError, UserWarning, NumericalFailure):
            reseed(stream, theta.device)
            return looped(function)(theta, *inputs)
