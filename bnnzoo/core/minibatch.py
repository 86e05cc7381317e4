"""Data on its way into a model: arrays to tensors, checks, and selections of rows."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnnzoo.core.types import Data

__all__ = ["DataError", "as_tensors", "select", "unequal_rows", "usable_device"]


class DataError(ValueError):
    """An argument of the model holds data it cannot be fitted to; the message names the argument, row and column."""


def as_tensors(data: Data, dtype: torch.dtype, device: torch.device) -> Data:
    """Return the model's arguments with every array, frame or tensor turned into a finite tensor.

    Parameters
    ----------
    data : tuple
        Numpy arrays, pandas frames or series, tensors; anything else is passed on as it is.
    dtype : torch.dtype
        For floating-point values; integers and booleans keep their kind.
    device : torch.device

    Raises
    ------
    DataError
        If a value is NaN or infinite, or a column is not numeric.
    """
    return tuple(_as_tensor(value, place, dtype, device) for place, value in enumerate(data))


def usable_device(device: torch.device | str | None) -> torch.device:
    """Return a device on which torch can compute here, the CPU where None is asked for.

    Raises
    ------
    ValueError
        If torch does not know the device, does not find it, or keeps no numbers on it.
    """
    try:
        found = torch.device("cpu" if device is None else device)
        torch.zeros((), device=found).item()
    except (AssertionError, RuntimeError) as error:  # the former where torch was built without CUDA
        raise ValueError(
            f"device={str(device)!r}: torch cannot compute there ({str(error).split('. ')[0]}). Leave device out for the CPU; "
            f'"cuda" needs torch.cuda.is_available().'
        ) from None
    return found


def select(data: Data, rows: Tensor | slice, num_data: int) -> Data:
    """Return ``data`` with only the given rows of each tensor that has ``num_data`` of them; a slice makes no copy."""
    return tuple(
        value[rows] if isinstance(value, Tensor) and value.ndim and len(value) == num_data else value for value in data
    )


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


def _as_tensor(value: Any, place: int, dtype: torch.dtype, device: torch.device) -> Any:
    if not isinstance(value, Tensor):
        if not isinstance(value, np.ndarray) and not hasattr(value, "to_numpy"):
            return value
        value = _from_array(value, place)
    tensor = value.to(device=device, dtype=dtype if value.is_floating_point() else None)
    _refuse_not_finite(tensor, place)
    return tensor


def _from_array(value: Any, place: int) -> Tensor:
    array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"Data refused: {_argument(place)} {_non_numeric(value)}. Encode it as numbers, for example with "
            f"pandas.get_dummies."
        )
    return torch.from_numpy(np.array(array))


def _non_numeric(value: Any) -> str:
    """Say which column of a frame is not numeric, or what kind of array it is."""
    columns = [str(name) for name, kind in getattr(value, "dtypes", {}).items()] if hasattr(value, "columns") else []
    bad = [name for name in columns if value[name].to_numpy().dtype.kind not in "fiub"]
    if bad:
        return f"has the non-numeric column {bad[0]!r}"
    return f"is not numeric (dtype {value.dtype if not columns else 'object'})"


def _refuse_not_finite(tensor: Tensor, place: int) -> None:
    if not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()):
        return
    where = torch.nonzero(~torch.isfinite(tensor))[0].tolist()
    names = ["row", "column", *(f"axis {i}" for i in range(2, len(where)))]
    spot = ", ".join(f"{name} {index}" for name, index in zip(names, where, strict=False))
    value = tensor[tuple(where)].item()
    raise DataError(
        f"Data refused: {_argument(place)} holds {value} at {spot or 'its only entry'}. Remove or impute missing values "
        f"before fitting."
    )


def _argument(place: int) -> str:
    return f"argument {place + 1} of the model"
