"""Data that stay where they are: memory-mapped and zarr arrays, torch datasets and loaders, read a batch at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    default_collate,
)

from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.minibatch import as_tensors, has_rows, select
from bnnzoo.core.types import Data

__all__ = [
    "ArrayRows",
    "DatasetRows",
    "IndexedRows",
    "LoaderRows",
    "RowSource",
    "is_out_of_memory",
    "is_stored",
    "num_rows_of",
    "row_source",
    "source_of",
]

ROWS_READ_FIRST = 64  # rows on which a model is read
MAX_NAMED = 6


@runtime_checkable
class RowSource(Protocol):
    """The rows of a model's arguments, of which only some are in memory at a time."""

    @property
    def num_rows(self) -> int: ...
    def head(self) -> Data: ...


@runtime_checkable
class IndexedRows(RowSource, Protocol):
    """Rows that can be read in any order."""

    def take(self, index: Tensor | slice) -> Data: ...


@dataclass(frozen=True)
class ArrayRows:
    """Arguments of which some are arrays on disk; the others are tensors in memory or no data at all.

    Attributes
    ----------
    arguments : tuple
    num_rows : int
    dtype, device
        Of the rows that are read.
    """

    arguments: Data
    num_rows: int
    dtype: torch.dtype
    device: torch.device

    def head(self) -> Data:
        """Return the first few rows."""
        return self.take(slice(0, min(ROWS_READ_FIRST, self.num_rows)))

    def take(self, index: Tensor | slice) -> Data:
        """Return the rows with the given indices ``[B]`` or ``[C, B]``, or of a slice, as finite tensors.

        Raises
        ------
        DataError
            If a value is NaN or infinite.
        """
        flat = index.flatten() if isinstance(index, Tensor) else index
        stored = tuple(_read(value, flat) if is_stored(value) else None for value in self.arguments)
        tensors = _finite(stored, self.dtype, self.device, _rows_in_words(flat))
        pairs = zip(tensors, select(self.arguments, flat, self.num_rows), self.arguments, strict=True)
        return tuple(
            _shaped(held if tensor is None else tensor, index)
            if tensor is not None or has_rows(whole, self.num_rows)
            else held
            for tensor, held, whole in pairs
        )


@dataclass(frozen=True)
class DatasetRows:
    """A torch dataset whose items are the arguments for one row."""

    dataset: Any
    dtype: torch.dtype
    device: torch.device

    @property
    def num_rows(self) -> int:
        """Number of items."""
        return len(self.dataset)

    def head(self) -> Data:
        """Return the first few rows."""
        return self.take(slice(0, min(ROWS_READ_FIRST, self.num_rows)))

    def take(self, index: Tensor | slice) -> Data:
        """Return the rows with the given indices ``[B]`` or ``[C, B]``, or of a slice, as finite tensors.

        Raises
        ------
        DataError
            If an item is missing, or a value is NaN or infinite.
        """
        places = range(*index.indices(self.num_rows)) if isinstance(index, slice) else index.flatten().tolist()
        items = []
        for place in places:
            try:
                items.append(self.dataset[place])
            except IndexError:
                raise DataError(
                    f"Data refused: the {type(self.dataset).__name__} has no item {place}, although len() gives "
                    f"{self.num_rows}. Let len() be the number of rows."
                ) from None
        batch = default_collate(items)
        found = _finite(_arguments(batch), self.dtype, self.device, _rows_in_words(torch.tensor(list(places))))
        return tuple(_shaped(value, index) for value in found)


@dataclass(frozen=True)
class LoaderRows:
    """A torch loader whose batches are the arguments of the model."""

    loader: Any
    num_rows: int
    batch_size: int
    dtype: torch.dtype
    device: torch.device

    def head(self) -> Data:
        """Return the first batch."""
        return next(self.batches())

    def batches(self) -> Iterator[Data]:
        """Yield the batches of one pass after another, without a short last one.

        Raises
        ------
        DataError
            If a pass has fewer batches than the loader says, or a value is NaN or infinite.
        """
        while True:
            yield from (rows for rows in self.one_pass() if num_rows_of(rows) == self.batch_size)

    def one_pass(self) -> Iterator[Data]:
        """Yield the batches of one pass, with a short last one; see :meth:`batches`."""
        expected, count = len(self.loader), 0
        for count, batch in enumerate(self.loader, start=1):
            tensors = _finite(_arguments(batch), self.dtype, self.device, f"batch {count} of the loader")
            if num_rows_of(tensors) != self.batch_size and count < expected:
                raise DataError(
                    f"Data refused: batch {count} of the loader has {num_rows_of(tensors)} rows instead of {self.batch_size}; "
                    f"only the last batch of a pass may be shorter."
                )
            yield tensors
        if count < expected:
            raise DataError(
                f"Data refused: the loader ended after {count} of {expected} batches, so that rows are missing; let len(loader) "
                f"be the number of batches of every pass."
            )


def row_source(data: Data, dtype: torch.dtype, device: torch.device) -> RowSource | None:
    """Return the rows of a model's arguments if some of them are on disk, or come from a torch dataset or loader.

    Raises
    ------
    DataError
        If a dataset or loader is not the only argument, has no length, or a loader has no batch size.

    Examples
    --------
    >>> loader = DataLoader(torch.utils.data.TensorDataset(torch.zeros(10, 2), torch.zeros(10)), batch_size=5)
    >>> source = row_source((loader,), torch.float32, torch.device("cpu"))
    >>> source.num_rows, [len(value) for value in source.head()]
    (10, [5, 5])
    """
    from_torch = [value for value in data if isinstance(value, DataLoader | Dataset)]
    if from_torch:
        return _from_torch(data, from_torch[0], dtype, device)
    lengths = {value.shape[0] for value in data if is_stored(value)}
    if not lengths:
        return None
    if len(lengths) > 1:
        raise DataError(
            f"Data refused: the arrays on disk have {sorted(lengths)} rows. Pass one row an observation in each."
        )
    arguments = tuple(value if is_stored(value) else as_tensors((value,), dtype, device)[0] for value in data)
    return ArrayRows(arguments, lengths.pop(), dtype, device)


def source_of(data: Data, dtype: torch.dtype, device: torch.device) -> RowSource:
    """Return the rows of a model's arguments wherever they are, in memory too."""
    found = row_source(data, dtype, device)
    if found is not None:
        return found
    tensors = as_tensors(data, dtype, device)
    return ArrayRows(tensors, num_rows_of(tensors), dtype, device)


def is_stored(value: object) -> bool:
    """Whether an argument is an array outside of memory: a memory-mapped numpy array or a zarr array."""
    return isinstance(value, np.memmap) or type(value).__module__.partition(".")[0] == "zarr"


def is_out_of_memory(data: Data) -> bool:
    """Whether some of the arguments are arrays on disk, or a torch dataset or loader."""
    return any(is_stored(value) or isinstance(value, DataLoader | Dataset) for value in data)


def _from_torch(data: Data, value: Any, dtype: torch.dtype, device: torch.device) -> RowSource:
    kind = type(value).__name__
    if len(data) > 1:
        raise DataError(
            f"Data refused: a {kind} gives all arguments of the model, but {len(data)} arguments were passed. Write "
            f"fit(model, method, loader)."
        )
    dataset = value.dataset if isinstance(value, DataLoader) else value
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise DataError(
            f"Data refused: the {kind} has no length, and a mini-batch counts N/B times for N rows. Pass a dataset with "
            f"__len__ and __getitem__."
        )
    if not isinstance(value, DataLoader):
        return DatasetRows(value, dtype, device)
    if value.batch_size is None:
        raise DataError("Data refused: the DataLoader has batch_size=None. Write DataLoader(dataset, batch_size=256).")
    num_rows = _rows_of_a_pass(value)
    if value.batch_size > num_rows > 0:
        whose = "its dataset" if num_rows == len(dataset) else "its sampler"
        raise DataError(
            f"Data refused: the DataLoader has batch_size={value.batch_size}, but {whose} has {num_rows} rows. Write at most "
            f"{num_rows}."
        )
    return LoaderRows(value, num_rows, value.batch_size, dtype, device)


def _rows_of_a_pass(loader: Any) -> int:
    """Return how many rows a pass of a loader has, each of them once."""
    sampler, num_rows = loader.sampler, len(loader.dataset)
    if isinstance(sampler, WeightedRandomSampler) or getattr(sampler, "replacement", False):
        raise DataError(
            f"Data refused: the loader's {type(sampler).__name__} draws rows with weights or with replacement, so that some rows "
            f"would count more often than others. Write DataLoader(dataset, batch_size, shuffle=True)."
        )
    if not hasattr(sampler, "__len__"):
        raise DataError(
            f"Data refused: the loader's {type(sampler).__name__} has no length, and a mini-batch counts N/B times for N rows. "
            f"Give it __len__, the number of rows of a pass."
        )
    if isinstance(sampler, RandomSampler) and len(sampler) != num_rows:
        raise DataError(
            f"Data refused: the loader's RandomSampler has num_samples={len(sampler)} for {num_rows} rows, others in each pass. "
            f"Leave num_samples out."
        )
    numbers: list[str] = []
    if not isinstance(sampler, RandomSampler | SequentialSampler):  # which give each row once
        with torch.random.fork_rng([]):
            numbers = [str(number) for number in islice(sampler, len(sampler))]
    if len(set(numbers)) < len(numbers):
        raise DataError(
            f"Data refused: the loader's {type(sampler).__name__} gives some rows more than once a pass, so that they would "
            f"count more often than others. Give it each row once."
        )
    if loader.drop_last and isinstance(sampler, SequentialSampler):  # which leaves the same rows out of every pass
        return len(sampler) // loader.batch_size * int(loader.batch_size)
    return len(sampler)


def _read(value: Any, index: Tensor | slice) -> Any:
    """Read rows of an array on disk into memory."""
    if isinstance(index, slice) or isinstance(value, np.ndarray):
        return np.array(value[index if isinstance(index, slice) else index.cpu().numpy()])
    return value.oindex[index.cpu().numpy()]


def _arguments(batch: Any) -> Data:
    if isinstance(batch, dict):
        raise DataError("Data refused: the loader gives dictionaries; let it give the model's arguments as a tuple.")
    return tuple(batch) if isinstance(batch, Sequence) else (batch,)


def _finite(rows: Data, dtype: torch.dtype, device: torch.device, place: str) -> Data:
    """Return rows as finite tensors; an error says where they are from."""
    try:
        return as_tensors(rows, dtype, device)
    except DataError as error:
        what, _, advice = str(error).partition(". ")
        raise DataError(f"{what} of {place}. {advice}") from None


def _rows_in_words(index: Tensor | slice) -> str:
    if isinstance(index, slice):
        return f"rows {index.start} to {index.stop - 1}"
    return (
        f"rows {', '.join(map(str, index.tolist()))}" if len(index) <= MAX_NAMED else "rows that were drawn at random"
    )


def _shaped(value: Any, index: Tensor | slice) -> Any:
    """Give rows ``[C * B, ...]`` the shape ``[C, B, ...]`` of the index by which they were read."""
    if isinstance(index, slice) or not isinstance(value, Tensor):
        return value
    return value.reshape(*index.shape, *value.shape[1:])


def num_rows_of(rows: Data) -> int:
    """Return the length of the first tensor among the arguments of a model."""
    return next((len(value) for value in rows if isinstance(value, Tensor) and value.ndim), 0)
