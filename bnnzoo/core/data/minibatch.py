"""Data on its way into a model: arrays to tensors, checks, and selections of rows."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.conversion import as_tensor
from bnnzoo.core.types import Data

__all__ = ["as_tensors", "has_rows", "num_numbers", "select", "unequal_rows"]


def as_tensors(
    data: Data, dtype: torch.dtype, device: torch.device, *, gaps: bool = False, owned: bool = False
) -> Data:
    """Return the model's arguments with every array, frame or tensor turned into a finite tensor.

    Parameters
    ----------
    data : tuple
        Arrays, data frames, series, labelled arrays, lists of numbers, tensors; anything else is passed on as it is.
    dtype : torch.dtype
        For floating-point values; integers and booleans keep their kind.
    device : torch.device
    gaps : bool
        Whether values may be NaN.
    owned : bool
        Copy tensors that need no conversion, too: what is fitted does not change with the user's own.

    Raises
    ------
    DataError
        If a value is NaN or infinite, or a column is not numeric.
    """
    return tuple(
        as_tensor(value, _argument(place), dtype, device, gaps=gaps, owned=owned) for place, value in enumerate(data)
    )


def has_rows(value: object, num_data: int) -> bool:
    """Tell whether an argument of the model has one row for each observation."""
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == num_data


def select(data: Data, rows: Tensor | slice, num_data: int) -> Data:
    """Return ``data`` with only the given rows of each tensor that has ``num_data`` of them; a slice makes no copy."""
    return tuple(value[rows] if has_rows(value, num_data) else value for value in data)


def num_numbers(data: Iterable[Any]) -> int:
    """Return how many numbers the tensors among arguments hold."""
    return sum(value.numel() for value in data if isinstance(value, Tensor))


def unequal_rows(data: Data) -> str | None:
    """Say how the arguments differ in their number of rows; None if they agree.

    A model may well take arguments of different lengths, so this explains a failure and is none by itself.
    """
    lengths = {place: len(value) for place, value in enumerate(data) if isinstance(value, Tensor) and value.ndim}
    if len(set(lengths.values())) < 2:
        return None
    found = ", ".join(f"{_argument(place)} has {length}" for place, length in lengths.items())
    return (
        f"The model failed on arguments with different numbers of rows: {found}. Pass one row an observation in each."
    )


def _argument(place: int) -> str:
    return f"argument {place + 1} of the model"
