"""Data as a method reads them: in memory, or a mini-batch at a time from a file, a dataset or a loader."""

from collections.abc import Mapping

import numpy as np
import torch

from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.row_source import DatasetRows, LoaderRows, is_stored, row_source
from bnnzoo.core.data.sizes import refuse_beyond_memory
from bnnzoo.core.method import Method, declared, in_batches_of
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.reading.reading import read_model
from bnnzoo.core.reading.streamed import StreamedDensity, read_streamed
from bnnzoo.core.types import Data, Model

__all__ = ["read_for", "refuse_checkpoint_of_loader"]


def read_for(
    method: Method, model: Model, data: Data, dtype: torch.dtype, device: torch.device
) -> tuple[Method, LogDensity, Mapping[str, Node]]:
    """Return the method, the density of the data as it reads them, and the nodes of the first run of the model.

    Arrays on disk, datasets and loaders stay where they are if the method looks at mini-batches only, whose size a loader sets.

    Raises
    ------
    DataError
        If the method looks at all rows of a dataset or loader, or of arrays that do not fit into memory.
    """
    source = row_source(data, dtype, device)
    if source is None:
        return method, *read_model(model, data, dtype, device)
    if isinstance(source, LoaderRows):
        method = in_batches_of(method, source.batch_size)
    reason = declared(method).reads_all_rows()
    if reason is None:
        return method, *read_streamed(model, source, dtype, device)
    if isinstance(source, LoaderRows | DatasetRows):
        given = source.loader if isinstance(source, LoaderRows) else source.dataset
        raise DataError(
            f"{type(method).__name__} looks at all rows at once, and a {type(given).__name__} gives some at a time: {reason}, or "
            f"pass tensors."
        )
    return method, *read_model(model, _in_memory(data, dtype, reason), dtype, device)


def refuse_checkpoint_of_loader(density: LogDensity, checkpoint: object) -> None:
    """Refuse to go on later with batches that cannot be drawn again.

    Raises
    ------
    ValueError
        If there is a checkpoint and the data come from a loader.
    """
    if checkpoint is not None and isinstance(density, StreamedDensity) and isinstance(density.source, LoaderRows):
        raise ValueError(
            "checkpoint= needs batches that can be drawn again, and the order of a DataLoader is its own: pass its dataset."
        )


def _in_memory(data: Data, dtype: torch.dtype, reason: str) -> Data:
    stored = [value for value in data if is_stored(value)]
    refuse_beyond_memory(
        float(sum(value.size for value in stored)) * dtype.itemsize,
        "The arrays on disk, all rows of which are looked at,",
        f"{reason[:1].upper()}{reason[1:]} to leave them on disk",
    )
    return tuple(np.asarray(value[:]) if is_stored(value) else value for value in data)
