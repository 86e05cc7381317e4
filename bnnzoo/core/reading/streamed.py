"""The density of a model whose data are not in memory: read on the first rows, evaluated on mini-batches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.minibatch import select
from bnnzoo.core.data.row_source import IndexedRows, LoaderRows, RowSource, num_rows_of
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.reading.reading import conformed, read_model
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.value_and_grad import looped_value_and_grad

__all__ = [
    "StreamedDensity",
    "num_held",
    "read_streamed",
    "rows_in_blocks",
    "rows_of",
    "value_and_grad_over_rows",
]

ROWS_IN_MEMORY = 4096  # of a density whose data are read block by block


@dataclass(frozen=True, repr=False)
class StreamedDensity(LogDensity):
    """A density of all rows of a source, whose ``data`` are the first of them.

    Attributes
    ----------
    source : RowSource
    """

    source: RowSource

    @property
    def has_data(self) -> bool:
        """False: not all rows are in memory."""
        return False

    def take(self, index: Tensor | slice) -> Data:
        """Return the arguments of the model for the rows ``[B]`` or ``[C, B]``, or those of a slice."""
        assert isinstance(self.source, IndexedRows)
        return conformed(self.source.take(index), self.data)

    def batches(self) -> Iterator[Data]:
        """Yield the batches of a loader, one pass after another."""
        assert isinstance(self.source, LoaderRows)
        return (conformed(rows, self.data) for rows in self.source.batches())

    def blocks(self, size: int) -> Iterator[Data]:
        """Yield all rows once, ``size`` at a time or as a loader gives them."""
        if isinstance(self.source, LoaderRows):
            yield from (conformed(rows, self.data) for rows in self.source.one_pass())
            return
        for start in range(0, self.num_data, size):
            yield self.take(slice(start, min(start + size, self.num_data)))


def read_streamed(
    model: Model, source: RowSource, dtype: torch.dtype, device: torch.device
) -> tuple[StreamedDensity, Mapping[str, Node]]:
    """Return the log density of a model given all rows of a source, and the nodes of its run on the first of them.

    Raises
    ------
    DataError
        If the source is empty, or the model's observations are not one a row.
    """
    if not source.num_rows:
        raise DataError("Data refused: there are no rows. Pass at least one observation.")
    head = source.head()
    found, first = read_model(model, head, dtype, device)
    count = num_rows_of(head)
    if found.num_data != count:
        raise DataError(
            f"Data refused: {count} rows have {found.num_data} observations, and mini-batches of data on disk need one for each "
            f"row. Put the rows into a plate, or pass the data as tensors."
        )
    values = {field.name: getattr(found, field.name) for field in fields(found)} | {"num_data": source.num_rows}
    return StreamedDensity(**values, source=source), first


def num_held(density: LogDensity) -> int:
    """Return how many rows of the data are in memory."""
    return num_rows_of(density.data) if isinstance(density, StreamedDensity) else density.num_data


def rows_of(density: LogDensity, index: Tensor | slice) -> Data:
    """Return the arguments of the model for the rows ``[B]`` or ``[C, B]``, or those of a slice, wherever they are."""
    if isinstance(density, StreamedDensity):
        return density.take(index)
    return select(density.data, index, density.num_data)


def rows_in_blocks(density: LogDensity, size: int) -> Iterator[tuple[Data, float]]:
    """Yield all rows once, ``size`` at a time or as a loader gives them, with their share of all rows.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> [share for _, share in rows_in_blocks(build_density(target.model, *target.data), 30)]
    [0.75, 0.25]
    """
    if isinstance(density, StreamedDensity):
        yield from ((rows, num_rows_of(rows) / density.num_data) for rows in density.blocks(size))
        return
    for start in range(0, density.num_data, size):
        stop = min(start + size, density.num_data)
        yield rows_of(density, slice(start, stop)), (stop - start) / density.num_data


def value_and_grad_over_rows(density: LogDensity, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log density ``[C]`` and its gradient ``[C, P]`` at ``theta[C, P]``, given all rows.

    A block of rows that are not in memory is scaled up to all rows and weighted by its share of them, so that the prior counts
    once.
    """
    if density.is_one_of_many:  # in a single fit tracing takes longer than a few points
        value, gradient = density.value_and_grad(theta, *density.data)
        return value, gradient
    looped = looped_value_and_grad(density.log_joint)
    if not isinstance(density, StreamedDensity):
        return looped(theta, *density.data)
    value, gradient = torch.zeros_like(theta[:, 0]), torch.zeros_like(theta)
    for rows, share in rows_in_blocks(density, ROWS_IN_MEMORY):
        of_rows = looped(theta, *rows)
        value, gradient = value + share * of_rows[0], gradient + share * of_rows[1]
    return value, gradient
