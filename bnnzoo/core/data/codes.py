"""Codes of groups, by which a model indexes its effects: out of range, negative for a missing category, or no whole numbers."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.overrides import TorchFunctionMode

from bnnzoo.core.data.arguments import argument_names, leaves
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.types import Data, Model

__all__ = ["code_out_of_range", "is_whole", "refusing_bad_codes"]

OUT_OF_BOUNDS = re.compile(r"index (-?\d+) is out of bounds for dimension -?\d+ with size (\d+)")
INDEXING = (Tensor.__getitem__, torch.index_select, Tensor.index_select, torch.take, Tensor.take)

OF_TYPES = "tensors used as indices must be whole numbers"

MAX_COLUMNS = 64
"""Columns of a matrix that are looked at: codes may be one of them."""


def code_out_of_range(error: BaseException, data: Data, names: Sequence[str]) -> str | None:
    """Say which argument holds the code that is out of range where torch says no more than that there is one."""
    found = OUT_OF_BOUNDS.search(str(error))
    if found is None:
        return None
    code, size = int(found[1]), int(found[2])
    for name, value in _columns(data, names):
        if value.is_floating_point() or not bool((value == code).any()):
            continue
        from_one = int(value.min()) == 1 and int(value.max()) == size
        advice = (
            "Subtract 1: codes begin at 0."
            if from_one
            else "Number the groups with pandas.factorize, and count them all."
        )
        return f"{_holds(name, value, code)}, and the model indexes {size} groups by it: codes run from 0 to {size - 1}. {advice}"
    return None


def refusing_bad_codes(model: Model, data: Data) -> AbstractContextManager[Any]:
    """Refuse a run of the model that indexes by an argument, or a column of one, with negative numbers or floating-point ones.

    Python counts the former from the end. Indices that the model computes itself, such as those of a lag, are its own affair.
    """
    return _Indices(data, argument_names(model, len(data)))


class _Indices(TorchFunctionMode):
    """Looks at what tensors are indexed by."""

    def __init__(self, data: Data, names: Sequence[str]) -> None:
        super().__init__()
        self.data, self.names = data, names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in INDEXING or func is one_hot:
            for index in _tensors(args[:1] if func is one_hot else args[1:]):
                if index.is_floating_point() and (name := self._name_of(index)) is not None:
                    raise DataError(
                        f"Data refused: argument {name} holds floating-point numbers ({index.dtype}), and the model indexes by "
                        f"it. Pass whole numbers: tensor.long(), or array.astype(int)."
                    ) from IndexError(OF_TYPES)
                if is_whole(index) and bool((index < 0).any()) and (name := self._name_of(index)) is not None:
                    raise DataError(
                        f"{_holds(name, index, int(index[index < 0][0]))}, and the model indexes by it, which would count from "
                        f"the last group. pandas gives missing categories the code -1: drop these rows, or give them a group "
                        f"of their own."
                    )
        return func(*args, **(kwargs or {}))

    def _name_of(self, index: Tensor) -> str | None:
        """Return which argument, or column of one, an index is."""
        columns = _columns(self.data, self.names)
        return next((name for name, each in columns if each.shape == index.shape and bool((each == index).all())), None)


def _holds(name: str, value: Tensor, code: int) -> str:
    return f"Data refused: argument {name} holds the code {code} in row {torch.nonzero(value == code)[0, 0].item()}"


def _columns(data: Data, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield arguments of one dimension, those within mappings and sequences too, and the columns of matrices."""
    for place, (name, argument) in enumerate(zip(names, data, strict=True), 1):
        for path, value in leaves(name, argument):
            if isinstance(value, Tensor) and value.ndim == 1:
                yield f"{place} ({path!r})", value
            elif isinstance(value, Tensor) and value.ndim == 2:
                columns = value.T[:MAX_COLUMNS]
                yield from ((f"{place} ({path!r}, column {i})", column) for i, column in enumerate(columns))


def is_whole(value: Tensor) -> bool:
    """Tell whether a tensor holds whole numbers, by which a model may index."""
    return value.ndim > 0 and not value.is_floating_point() and value.dtype != torch.bool


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
