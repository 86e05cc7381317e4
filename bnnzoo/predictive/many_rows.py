"""Predictions for many rows, some of them at a time: the numbers are those of all rows at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.data.row_source import IndexedRows, LoaderRows, row_source
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import plates_of
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.types import Data
from bnnzoo.predictive import datatree
from bnnzoo.predictive.blocks import Arrays, BlockArrays, Tile, block_length, nodes_or_nan, or_nan
from bnnzoo.predictive.independence import can_split_rows, probe, row_values
from bnnzoo.predictive.labels import ROWS, Labels, Plates, row_labels
from bnnzoo.predictive.latent import PosteriorDraws
from bnnzoo.predictive.row_functions import RowFunctions
from bnnzoo.predictive.rows import Rows, as_fitted, as_groups, new_data, refuse_all_lost
from bnnzoo.predictive.sweep import Job, Sweep

__all__ = ["Band", "ManyRows"]

BAND_BYTES = 2**24
"""Of the values of one band; a measure makes copies of them, some in double precision."""

ROWS_READ_FIRST = 64


@dataclass(frozen=True)
class Band:
    """Predictions for some rows after another.

    Attributes
    ----------
    rows : slice
    groups : mapping of str to Dataset
        Under the names for training data, with ``obs_id`` as in the whole.
    """

    rows: slice
    groups: Mapping[str, xr.Dataset]


@dataclass(frozen=True)
class ManyRows:
    """Rows to be predicted, of which only the first are read beforehand.

    Attributes
    ----------
    density : LogDensity
        That of the posterior.
    data : tuple
        Arguments of the model, if they are in memory; else those for the first rows.
    source : IndexedRows, optional
        Where the rows are read, unless all are in memory.
    head : Rows
        The first rows; their arguments as they were passed, which may name columns.
    num_rows : int
    index : array, optional
        Labels of all rows.
    """

    density: LogDensity
    data: Data
    source: IndexedRows | None
    head: Rows
    num_rows: int
    index: NDArray[Any] | None

    @classmethod
    def of(cls, density: LogDensity, theta: Tensor, raw: Data) -> "ManyRows | None":
        """Inspect the first rows at the first of ``theta[M, P]``; None if rows cannot be predicted a part at a time.

        Raises
        ------
        ValueError
            If the rows are those of a loader.
        """
        source = row_source(raw, density.dtype, density.device)
        if isinstance(source, LoaderRows):
            raise ValueError(
                "predict needs rows in a known order, which a DataLoader does not promise: pass its dataset."
            )
        if isinstance(source, IndexedRows):
            num_rows, data = (
                source.num_rows,
                as_fitted(density, source.take(slice(0, min(ROWS_READ_FIRST, source.num_rows)))),
            )
            first = data
        else:
            source, data = None, new_data(density, raw)
            num_rows = max((len(value) for value in data if isinstance(value, Tensor) and value.ndim), default=0)
            first = select(data, slice(0, min(ROWS_READ_FIRST, num_rows)), num_rows)
        head = Rows.of(density, theta, first)
        alone = num_rows == 1 and head.num_rows == 1
        if head.num_rows != min(ROWS_READ_FIRST, num_rows) or not (alone or head.splits):
            return None
        if not _splits(density, theta[0], head, num_rows, data if source is None else source):
            return None
        given = raw if len(raw) == len(data) else data
        return cls(density, data, source, replace(head, raw=given), num_rows, row_labels(raw, num_rows))

    def bytes_by_group(self, num_draws: int, functions: RowFunctions, theta: Tensor) -> dict[str, int]:
        """Return how many bytes the values of all rows at all draws take, by group."""
        with torch.no_grad(), isolated(0, theta.device):
            values = or_nan(functions.pure, theta, *self.head.data) | or_nan(functions.drawn, theta, *self.head.data)
        sizes: dict[str, int] = {}
        for variable, value in values.items():
            per_row = value.numel() * value.element_size() / max(1, self.head.num_rows)
            sizes[variable.group] = sizes.get(variable.group, 0) + int(per_row * self.num_rows * num_draws)
        return sizes

    def bands(self, draws: PosteriorDraws, functions: RowFunctions, labels: Labels) -> Iterator[Band]:
        """Yield the predictions for some rows after another."""
        # the deterministic sites that are wanted and have one value for each row, with their plates
        nodes = self.head.deterministic
        plates = {name: plates_of(node) for name, node in nodes.items() if functions.kept.has("deterministic", name)}
        shapes = {name: np.empty((1, 1, *nodes[name]["value"].shape)) for name in plates}
        dims = replace(labels, plates=plates).of_sites(shapes)
        sites = {name: found for name, found in plates.items() if dims[name][:1] == (ROWS,)}
        with_sites = replace(functions, sites=tuple(sites))
        sweep = with_sites.sweep(
            draws.flat, self._read, self.num_rows, draws.seed, splits=self.head.splits, together=self.head.together
        )
        by_rows: dict[int, list[tuple[int, Tile]]] = {}
        for number, tile in enumerate(sweep.tiles):
            by_rows.setdefault(tile.rows.start, []).append((number, tile))
        blocks = [_Block(own[0][1].rows, own[0][1].kept_rows, own) for own in by_rows.values()]
        tensors = (value for value in self.head.data if isinstance(value, Tensor) and value.ndim)
        size = sum(self.bytes_by_group(len(draws.flat), functions, draws.flat[0]).values())
        size += sum(value[:1].nbytes for value in tensors) * self.num_rows
        per_band = max(1, BAND_BYTES * len(blocks) // max(1, size))
        for first in range(0, len(blocks), per_band):
            part = blocks[first : first + per_band]
            rows = slice(part[0].kept.start, part[-1].kept.stop)  # the last blocks overlap those before
            yield self._band(*self._values(sweep, part, len(draws.flat)), rows, draws, functions, labels, sites)

    def _band(
        self,
        data: Data,
        arrays: Arrays,
        rows: slice,
        draws: PosteriorDraws,
        functions: RowFunctions,
        labels: Labels,
        sites: Plates,
    ) -> Band:
        """Return values as groups; in a function of its own, since what makes the next band must not hold this one."""
        if not self.head.observed:
            observed = {}
        else:
            with torch.no_grad():
                nodes = nodes_or_nan(self.density, draws.flat[0], *data)
            observed = {name: nodes[name]["value"] for name in self.head.observed}
        band = replace(self.head, data=data, observed=observed, num_rows=rows.stop - rows.start)
        if rows.start == 0:
            refuse_all_lost(draws, band, arrays)
        groups = as_groups(draws, band, arrays, labels, functions.kept)
        found = {variable.name: values for variable, values in arrays.items() if variable.group == "deterministic"}
        groups["deterministic"] = datatree.by_draw(draws.per_draw(found), replace(labels, plates=sites))
        return Band(rows, self._numbered(groups, rows))

    def _values(self, sweep: Sweep, blocks: "list[_Block]", num_draws: int) -> tuple[Data, Arrays]:
        """Return the arguments for the rows of some blocks, and the values ``[M, B, ...]`` there."""
        start, stop, end = blocks[0].rows.start, blocks[-1].rows.stop, blocks[-1].kept.stop
        data, out = self._read(slice(start, stop)), BlockArrays(num_draws, end - start)
        jobs = []
        for block in blocks:
            inputs = select(data, slice(block.rows.start - start, block.rows.stop - start), stop - start)
            jobs += [Job(number, inputs, tile.from_row(start)) for number, tile in block.tiles]
        sweep.fill(out, jobs)
        return select(data, slice(0, end - start), stop - start), out.arrays

    def _read(self, rows: slice) -> Data:
        if self.source is None:
            return select(self.data, rows, self.num_rows)
        return as_fitted(self.density, self.source.take(rows))

    def _numbered(self, groups: Mapping[str, xr.Dataset], rows: slice) -> dict[str, xr.Dataset]:
        """Return groups with the labels that rows have among all rows."""
        labels = np.arange(rows.start, rows.stop) if self.index is None else self.index[rows]
        return {
            name: group.assign_coords({ROWS: labels}) if ROWS in group.dims else group for name, group in groups.items()
        }


@dataclass(frozen=True)
class _Block:
    """Rows, those of them that no later block has, and the numbers and draws of the tiles in which they are evaluated."""

    rows: slice
    kept: slice
    tiles: list[tuple[int, Tile]]


def _splits(density: LogDensity, theta: Tensor, head: Rows, num_rows: int, where: Data | IndexedRows) -> bool:
    """Tell whether predictions and deterministic sites of rows are the same in blocks, by some of the rows if they are many."""
    size = block_length(num_rows, head.together)
    index = probe(num_rows, size)
    data = as_fitted(density, where.take(index)) if isinstance(where, IndexedRows) else select(where, index, num_rows)
    values, sites = row_values(density), [n for n, v in head.deterministic.items() if _has_rows(v["value"], head)]

    def function(theta: Tensor, *data: Any) -> dict[str, Tensor]:
        found = density.deterministics(theta, *data) if sites else {}
        return values(theta, *data) | {name: found[name] for name in sites}

    with torch.no_grad():
        return can_split_rows(
            or_nan(function, theta, *data), partial(or_nan, function), theta, data, len(index), [size]
        )


def _has_rows(value: Tensor, head: Rows) -> bool:
    return value.ndim > 0 and len(value) == head.num_rows
