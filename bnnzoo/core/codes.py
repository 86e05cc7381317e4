"""Codes of groups, by which a model indexes its effects: out of range, or negative for a missing category."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bnnzoo.core.arguments import argument_names
from bnnzoo.core.conversion import DataError
from bnnzoo.core.types import Data, Model

__all__ = ["code_out_of_range", "refusing_negative_codes"]

OUT_OF_BOUNDS = re.compile(r"index (-?\d+) is out of bounds for dimension -?\d+ with size (\d+)")
INDEXING = (Tensor.__getitem__, torch.index_select, Tensor.index_select, torch.take, Tensor.take)


def code_out_of_range(error: BaseException, data: Data, names: Sequence[str]) -> str | None:
    """Say which argument holds the code that is out of range where torch says no more than that there is one."""
    found = OUT_OF_BOUNDS.search(str(error))
    if found is None:
        return None
    code, size = int(found[1]), int(found[2])
    for place, value in enumerate(data):
        if not _is_whole(value) or not bool((value == code).any()):
            continue
        row = torch.nonzero(value == code)[0, 0].item()
        from_one = int(value.min()) == 1 and int(value.max()) == size
        advice = (
            "Subtract 1: codes begin at 0."
            if from_one
            else "Number the groups with pandas.factorize, and count them all."
        )
        return (
            f"Data refused: argument {place + 1} ({names[place]!r}) holds the code {code} in row {row}, and the model indexes "
            f"{size} groups by it: codes run from 0 to {size - 1}. {advice}"
        )
    return None


def refusing_negative_codes(model: Model, data: Data) -> AbstractContextManager[Any]:
    """Refuse a run of the model that indexes by an argument with negative numbers: Python counts them from the end.

    Arguments of whole numbers without a negative one cost a comparison.
    """
    negative = [i for i, value in enumerate(data) if _is_whole(value) and bool((value < 0).any())]
    names = argument_names(model, len(data))
    return _Indices({i: data[i] for i in negative}, names) if negative else nullcontext()


class _Indices(TorchFunctionMode):
    """Looks at what tensors are indexed by."""

    def __init__(self, negative: Mapping[int, Tensor], names: Sequence[str]) -> None:
        super().__init__()
        self.negative, self.names = negative, names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in INDEXING:
            for index in _tensors(args[1:]):
                self._refuse(index)
        return func(*args, **(kwargs or {}))

    def _refuse(self, index: Tensor) -> None:
        for place, value in self.negative.items():
            if index is value or (index.shape == value.shape and index.data_ptr() == value.data_ptr()):
                row, code = torch.nonzero(value < 0)[0, 0].item(), int(value[value < 0][0])
                raise DataError(
                    f"Data refused: argument {place + 1} ({self.names[place]!r}) holds the code {code} in row {row}, and the "
                    f"model indexes by it, which would count from the last group. pandas gives missing categories the code -1: "
                    f"drop these rows, or give them a group of their own."
                )


def _is_whole(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and not value.is_floating_point() and value.dtype != torch.bool


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
