"""Data as a method reads them: in memory, or a mini-batch at a time from a file, a dataset or a loader."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bnnzoo.core.data.minibatch import DataError
from bnnzoo.core.data.row_source import DatasetRows, LoaderRows, is_stored, row_source
from bnnzoo.core.data.sizes import refuse_beyond_memory
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.reading.reading import read_model
from bnnzoo.core.reading.streamed import StreamedDensity, read_streamed
from bnnzoo.core.types import Data, Model

__all__ = ["read_for", "refuse_checkpoint_of_loader", "why_all_rows"]

ALONE: Mapping[str, object] = {
    "polish_steps": 0,
    "held_out": 0.0,
    "adversarial": None,
    "anchored": False,
    "repulsion": None,
}
"""Settings of methods with mini-batches, and the values with which no more than mini-batches is ever looked at."""

STAGES = ("swag", "below", "vi")
"""Methods of which another one is made."""


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
        method = _with_batch_size(method, source.batch_size)
    reason = why_all_rows(method)
    if reason is None:
        return method, *read_streamed(model, source, dtype, device)
    if isinstance(source, LoaderRows | DatasetRows):
        given = source.loader if isinstance(source, LoaderRows) else source.dataset
        raise DataError(
            f"{type(method).__name__} looks at all rows at once, and a {type(given).__name__} gives some at a time: {reason}, or "
            f"pass tensors."
        )
    return method, *read_model(model, _in_memory(data, dtype, reason), dtype, device)


def why_all_rows(method: object) -> str | None:
    """Return what to write so that a method, and the one that it starts from, look at mini-batches only; None if they do.

    Examples
    --------
    >>> from bnnzoo.inference.ensembles.map import MAP
    >>> why_all_rows(MAP())
    'write MAP(batch_size=256, polish_steps=0)'
    """
    if not hasattr(method, "batch_size"):
        stages = [getattr(method, name) for name in STAGES if hasattr(method, name)]
        if not stages:
            return "use a method with batch_size=, such as MeanFieldVI(batch_size=256) or SGHMC()"
        return next((reason for reason in map(why_all_rows, stages) if reason), None)
    changes = [f"{name}={value}" for name, value in ALONE.items() if getattr(method, name, value) != value]
    if method.batch_size is None and not getattr(method, "always_in_batches", False):
        changes.insert(0, "batch_size=256")
    start = getattr(method, "init", None)
    if hasattr(start, "run") and (reason := why_all_rows(start)):
        changes.append(f"init={reason.removeprefix('write ')}")
    return f"write {type(method).__name__}({', '.join(changes)})" if changes else None


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


def _with_batch_size(method: Any, size: int) -> Any:
    """Return a method whose mini-batches, and those of the methods it is made of, have the size that a loader gives them."""
    found = {name: getattr(method, name) for name in (*STAGES, "init") if hasattr(getattr(method, name, None), "run")}
    changed: dict[str, Any] = {name: _with_batch_size(each, size) for name, each in found.items()}
    if hasattr(method, "batch_size"):
        if method.batch_size not in (None, size):
            raise ValueError(
                f"{type(method).__name__}(batch_size={method.batch_size}), but the DataLoader has batches of {size} rows: leave "
                f"batch_size out, or pass the loader's dataset."
            )
        changed["batch_size"] = size
    return replace(method, **changed)


def _in_memory(data: Data, dtype: torch.dtype, reason: str) -> Data:
    stored = [value for value in data if is_stored(value)]
    refuse_beyond_memory(
        float(sum(value.size for value in stored)) * dtype.itemsize,
        "The arrays on disk, all rows of which are looked at,",
        f"{reason[:1].upper()}{reason[1:]} to leave them on disk",
    )
    return tuple(np.asarray(value[:]) if is_stored(value) else value for value in data)
