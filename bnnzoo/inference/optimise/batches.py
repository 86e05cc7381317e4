"""Rows of the data that each step of training sees: all of them, mini-batches, or rows with weights."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import has_rows
from bnnzoo.core.data.row_source import LoaderRows
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.conditioned import refuse_dependent_rows
from bnnzoo.core.reading.parts import observations_in_words, refuse_dependent_parts
from bnnzoo.core.reading.streamed import StreamedDensity, num_held, rows_of
from bnnzoo.core.settings import Count
from bnnzoo.core.types import Data
from bnnzoo.inference.optimise.streams import MemberStreams

__all__ = [
    "AllRows",
    "Batches",
    "Bootstrap",
    "IndependentBatches",
    "MemberBatches",
    "MiniBatches",
    "RowBatches",
    "StepBatch",
    "batches_of",
    "refuse_no_rows",
    "selected_rows",
]


class StepBatch(NamedTuple):
    """The arguments of the model at one step.

    Attributes
    ----------
    data : tuple
        Tensors ``[B, ...]``, or ``[C, B, ...]`` where each member has rows of its own, and whatever else the model takes.
    dims : tuple of int or None
        Dimension of the members in each argument; None where all members share it.
    row_weights : Tensor [C, B], optional
        How often each row's log likelihood counts for each member.
    """

    data: Data
    dims: tuple[int | None, ...]
    row_weights: Tensor | None = None


@runtime_checkable
class Batches(Protocol):
    """A source of batches."""

    def stream(self, density: LogDensity, streams: MemberStreams) -> Iterator[StepBatch]:
        """Return an endless stream of batches, all of one shape, for the members of ``streams``."""
        ...


class RowBatches(ABC):
    """Batches of rows, by index, of the data that the density holds."""

    @abstractmethod
    def indices(self, num_data: int, streams: MemberStreams) -> Iterator[Tensor | None]:
        """Yield the indices ``[B]`` or ``[C, B]`` of each step's rows; None for all rows."""

    def row_weights(self, num_data: int, streams: MemberStreams) -> Tensor | None:
        """Return how often each row counts for each member ``[C, N]``; None for once."""
        return None

    @property
    def num_rows(self) -> int | None:
        """Number of rows of a batch; None for all rows of the data."""
        return None

    def have_same_rows(self, num_data: int) -> bool:
        """Tell whether every step sees the same rows, all of them."""
        return self.num_rows is None or self.num_rows >= num_data

    def stream(self, density: LogDensity, streams: MemberStreams) -> Iterator[StepBatch]:
        """Return an endless stream of batches; see :class:`Batches`.

        Raises
        ------
        ValueError
            If mini-batches are asked for of a model without rows, or of more rows than there are on disk.
        """
        if isinstance(density, StreamedDensity) and isinstance(density.source, LoaderRows):
            if isinstance(self, Bootstrap):
                raise ValueError(
                    "Bootstrap weights belong to rows, which a DataLoader does not name: pass its dataset."
                )
            return (StepBatch(data, (None,) * len(data)) for data in density.batches())
        if self.num_rows is not None:
            refuse_no_rows(self.num_rows, density)
        weights = self.row_weights(density.num_data, streams)
        weights = None if weights is None else weights.to(device=density.device, dtype=density.dtype)
        return _chosen(density, self.indices(density.num_data, streams), weights)


@dataclass(frozen=True)
class AllRows(RowBatches):
    """All rows at every step.

    Examples
    --------
    >>> next(AllRows().indices(5, MemberStreams(0, range(1)))) is None
    True
    """

    def indices(self, num_data: int, streams: MemberStreams) -> Iterator[Tensor | None]:
        """Yield None, for all rows."""
        return repeat(None)


@dataclass(frozen=True)
class MiniBatches(RowBatches):
    """Mini-batches that all members share: each epoch is a new permutation cut into batches, without a short last one.

    Parameters
    ----------
    size : int
        Rows of a batch; all rows at every step where the data have no more.

    Examples
    --------
    >>> batches = MiniBatches(2).indices(5, MemberStreams(0, range(3)))
    >>> epoch = torch.cat([next(batches), next(batches)])
    >>> epoch.shape, len(epoch.unique())
    (torch.Size([4]), 4)
    """

    size: Count

    def indices(self, num_data: int, streams: MemberStreams) -> Iterator[Tensor | None]:
        """Yield the indices ``[B]`` of each step's rows."""
        return repeat(None) if self.size >= num_data else _epochs(num_data, self.size, streams.shared)

    @property
    def num_rows(self) -> int:
        """Number of rows of a batch."""
        return self.size


@dataclass(frozen=True)
class MemberBatches(MiniBatches):
    """Mini-batches in an order of its own for each member, as in a deep ensemble.

    Parameters
    ----------
    size : int
        Rows of a batch; all rows at every step where the data have no more.

    References
    ----------
    Lakshminarayanan, Pritzel and Blundell (2017), Simple and scalable predictive uncertainty estimation using deep
    ensembles, NeurIPS.

    Examples
    --------
    >>> next(MemberBatches(2).indices(5, MemberStreams(0, range(3)))).shape
    torch.Size([3, 2])
    """

    def indices(self, num_data: int, streams: MemberStreams) -> Iterator[Tensor | None]:
        """Yield the indices ``[C, B]`` of each step's rows."""
        if self.size >= num_data:
            return repeat(None)
        orders = [_epochs(num_data, self.size, generator) for generator in streams.own("order of rows")]
        return (torch.stack(rows) for rows in zip(*orders, strict=True))


@dataclass(frozen=True)
class IndependentBatches(MemberBatches):
    """Rows drawn with replacement, independently from step to step: gradient noise without memory.

    The errors of batches that go through the data in turn cancel over a pass, so that chains and the iterates of SGD receive less
    noise than the variance of a single gradient says.

    Parameters
    ----------
    size : int
        Rows of a batch.
    """

    def indices(self, num_data: int, streams: MemberStreams) -> Iterator[Tensor | None]:
        """Yield the indices ``[C, B]`` of each step's rows."""
        generators = streams.own("order of rows")
        while True:
            yield torch.stack([torch.randint(num_data, (self.size,), generator=each) for each in generators])


@dataclass(frozen=True)
class Bootstrap(RowBatches):
    r"""Bootstrap weights of the rows: each member counts every row as often as N draws with replacement hit it.

    .. math:: (w_1, \dots, w_N) \sim \text{Multinomial}(N; 1/N, \dots, 1/N), \qquad E[w_n] = 1

    A member keeps its weights for the whole run.

    Parameters
    ----------
    of : RowBatches
        The batches whose rows are weighted.

    References
    ----------
    Efron (1979), Bootstrap methods: another look at the jackknife, Annals of Statistics 7.

    Examples
    --------
    >>> Bootstrap(MiniBatches(2)).row_weights(5, MemberStreams(0, range(3))).sum(1)
    tensor([5., 5., 5.])
    """

    of: RowBatches = field(default_factory=AllRows)

    def indices(self, num_data: int, streams: MemberStreams) -> Iterator[Tensor | None]:
        """Yield the indices of the batches that are weighted."""
        return self.of.indices(num_data, streams)

    @property
    def num_rows(self) -> int | None:
        """Number of rows of a batch; None for all rows of the data."""
        return self.of.num_rows

    def row_weights(self, num_data: int, streams: MemberStreams) -> Tensor | None:
        """Return how often each row counts for each member ``[C, N]``."""
        hits = [torch.randint(num_data, (num_data,), generator=each) for each in streams.own("bootstrap")]
        return torch.stack([hit.bincount(minlength=num_data) for hit in hits]).to(torch.get_default_dtype())


def batches_of(size: int | None) -> MiniBatches | AllRows:
    """Return mini-batches of ``size`` rows shared by all members; None for all rows at every step."""
    return AllRows() if size is None else MiniBatches(size)


def _epochs(num_data: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    while True:
        order = torch.randperm(num_data, generator=generator)
        yield from reversed([rows for rows in order.split(size) if len(rows) == size])


def _chosen(density: LogDensity, indices: Iterator[Tensor | None], weights: Tensor | None) -> Iterator[StepBatch]:
    everything = slice(0, density.num_data)
    whole: StepBatch | None = None
    for index in indices:
        if index is not None:
            yield selected_rows(density, index, weights)
            continue
        if whole is None:
            data = rows_of(density, everything) if isinstance(density, StreamedDensity) else density.data
            whole = StepBatch(data, (None,) * len(data), weights)
        yield whole


def selected_rows(density: LogDensity, index: Tensor, weights: Tensor | None = None) -> StepBatch:
    """Return the batch of rows ``[B]`` for all members, or ``[C, B]`` for each; weights are of all rows ``[C, N]``."""
    index = index.to(density.device)
    data = rows_of(density, index)
    own, count = index.ndim == 2, num_held(density)
    dims = tuple(0 if own and has_rows(whole, count) else None for whole in density.data)
    if weights is not None:
        weights = weights.gather(1, index) if own else weights[:, index]
    return StepBatch(data, dims, weights)


def refuse_no_rows(size: int, density: LogDensity) -> None:
    """Raise ValueError if batches of ``size`` rows are asked for of a model without rows, or of fewer of them."""
    refuse_dependent_rows(density, size)
    if isinstance(density, StreamedDensity) and size > density.num_data:
        raise ValueError(
            f"batch_size={size}, but the data on disk have {density.num_data} rows. Write at most {density.num_data}."
        )
    if not any(has_rows(value, num_held(density)) for value in density.data):
        raise ValueError(
            f"batch_size={size}, but no argument of the model has one row for each of its "
            f"{observations_in_words(density)}. Leave batch_size out."
        )
    if size < density.num_data:
        refuse_dependent_parts(density, size, f"batch_size={size}")
