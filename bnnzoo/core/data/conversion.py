"""From whatever holds numbers to a tensor of finite numbers: lists, arrays, frames, labelled arrays."""

from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

__all__ = ["DataError", "MissingValuesError", "as_tensor"]

NUMERIC = "fiub"
SMALL = (torch.int8, torch.int16, torch.uint8)
"""Integers whose squares and differences would soon leave their range: they are widened."""


IMPUTING = (
    "A model can impute them: gaps = torch.isnan(x); seen = x.nan_to_num(); "
    "pyro.sample('x', dist.Normal(m, s).mask(~gaps), obs=seen); "
    "fill = pyro.sample('x_missing', dist.Normal(m, s).expand([int(gaps.sum())]).to_event(1)); "
    "x = seen.masked_scatter(gaps, fill)."
)


class DataError(ValueError):
    """An argument of the model holds data it cannot be fitted to; the message names the argument, row and column."""


class MissingValuesError(DataError):
    """An argument of the model holds NaN, and the model does not say what it makes of it."""


def as_tensor(
    value: Any, argument: str, dtype: torch.dtype, device: torch.device, *, gaps: bool = False, owned: bool = False
) -> Any:
    """Return a tensor of finite numbers, detached; or the value itself if it is nothing that holds numbers.

    Parameters
    ----------
    value : Any
        A tensor, a numpy array, a list of numbers, or an object with ``to_numpy`` or ``__array__``, as those of pandas, polars
        and xarray. Within mappings, tuples and lists, such arrays are converted in place of the originals, however deep; anything
        else is returned as it is.
    argument : str
        Its name in messages, such as ``"argument 1 of the model"``.
    dtype : torch.dtype
        For floating-point values; integers and booleans keep their kind, small integers are widened.
    device : torch.device
    gaps : bool
        Whether values may be missing, for a model that fills or masks them itself.
    owned : bool
        Copy tensors that need no conversion, too, so that a change in place does not reach the result.

    Raises
    ------
    DataError
        If a value is missing, as :class:`MissingValuesError`, or infinite, the values are not numbers, or a whole number has more
        than 63 bits.

    Examples
    --------
    >>> as_tensor([[1.0, 2.0]], "x", torch.float32, torch.device("cpu"))
    tensor([[1., 2.]])
    """
    if isinstance(value, Tensor):
        if value.is_meta:
            raise _refused(argument, "is a tensor on the device 'meta', which has no values", "Pass one with values")
        if value.is_nested:
            raise _refused(argument, "is a nested tensor", "Pass one of rows of equal length, .to_padded_tensor(0.0)")
        if value.is_quantized:
            raise _refused(argument, "is a quantised tensor", "Pass its numbers, .dequantize()")
        if value.layout is not torch.strided:
            raise _refused(argument, "is a sparse tensor", "Pass the dense one, .to_dense()")
        if value.is_complex():
            raise _refused(argument, "holds complex numbers", "Pass real and imaginary parts as columns")
        tensor = value.detach()
    else:
        if isinstance(value, DataLoader | Dataset):
            reason = f"is a {type(value).__name__}"
            raise _refused(argument, reason, "Pass all rows as arrays or tensors; batch_size=... makes mini-batches")
        if hasattr(value, "toarray") and hasattr(value, "nnz"):
            raise _refused(argument, "is a sparse matrix", "Pass the dense one, .toarray()")
        if hasattr(value, "data_vars"):
            names = ", ".join(map(str, value.data_vars))
            reason = f"is a {type(value).__name__} of several variables ({names})"
            raise _refused(argument, reason, "Pass one of them, or .to_dataframe()")
        if not _holds_numbers(value):
            return _with_tensors_within(value, argument, dtype, device, gaps, owned)
        tensor = torch.from_numpy(_numbers(value, argument))
    kind = dtype if tensor.is_floating_point() else torch.int64 if tensor.dtype in SMALL else None
    tensor = tensor.to(device=device, dtype=kind, copy=owned and isinstance(value, Tensor))
    tensor = tensor.clone() if tensor.is_inference() else tensor  # what inference mode made cannot be differentiated by
    _refuse_not_finite(tensor, value, argument, gaps)
    return tensor


def _with_tensors_within(
    value: Any, argument: str, dtype: torch.dtype, device: torch.device, gaps: bool, owned: bool
) -> Any:
    """Return a mapping, tuple or list whose arrays are tensors; the value itself where there is nothing to convert."""
    if isinstance(value, dict):
        found = {
            key: as_tensor(each, f"{argument}[{key!r}]", dtype, device, gaps=gaps, owned=owned)
            for key, each in value.items()
        }
        if all(found[key] is each for key, each in value.items()):
            return value
        converted = copy(value)  # keeps its kind, an OrderedDict for instance
        converted.update(found)
        return converted
    if not isinstance(value, list | tuple):
        return value
    fields = getattr(value, "_fields", None)
    names = [f".{name}" for name in fields] if fields else [f"[{place}]" for place in range(len(value))]
    items = [
        as_tensor(each, f"{argument}{name}", dtype, device, gaps=gaps, owned=owned)
        for name, each in zip(names, value, strict=True)
    ]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if fields else type(value)(items)


def _holds_numbers(value: Any) -> bool:
    if isinstance(value, list):
        leaf: Any = value
        while isinstance(leaf, list | tuple) and leaf:
            leaf = leaf[0]
        if isinstance(leaf, np.ndarray):
            return leaf.dtype.kind in NUMERIC
        return leaf is None or isinstance(leaf, int | float | np.number | np.bool_)
    is_scalar = isinstance(value, np.generic) or callable(value) or isinstance(value, type)
    return not is_scalar and any(hasattr(value, name) for name in ("to_numpy", "__array__"))


def _numbers(value: Any, argument: str) -> NDArray[Any]:
    """Return a new array of a kind that torch knows; what is missing becomes NaN."""
    array = _array(value, argument)
    if array.dtype.kind == "O":
        if any(isinstance(each, str | bytes) for each in array.flat):
            raise _non_numeric(argument, value, array)
        # None and pandas' NA become NaN, and are refused later with their place
        is_missing = np.array([each is None or type(each).__name__ in ("NAType", "NaTType") for each in array.flat])
        if not is_missing.any():
            array = np.array(array.tolist())  # whole numbers stay whole
        else:
            try:
                array = np.where(is_missing.reshape(array.shape), np.nan, array).astype(float)
            except (TypeError, ValueError):
                raise _non_numeric(argument, value, array) from None
    if array.dtype.kind not in NUMERIC:
        raise _non_numeric(argument, value, array)
    kind: Any = array.dtype
    if array.dtype.kind == "u":
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise _refused(
                argument, f"holds {array.max()}, beyond 64-bit integers", "Pass it as floating-point numbers"
            )
        kind = np.int64
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        kind = np.float64  # torch has no long doubles
    return np.array(array, dtype=np.dtype(kind).newbyteorder("="))


def _array(value: Any, argument: str) -> NDArray[Any]:
    try:
        array = value.to_numpy() if hasattr(value, "to_numpy") else np.asanyarray(value)
    except ValueError:  # numpy's "inhomogeneous shape"
        raise _refused(argument, "is a list whose rows have different lengths", "Give each the same columns") from None
    if isinstance(array, np.ma.MaskedArray):
        masked: Any = array.astype(float)
        return masked.filled(np.nan) if np.ma.is_masked(array) else array.data
    return np.asarray(array)


def _non_numeric(argument: str, value: Any, array: NDArray[Any]) -> DataError:
    """Say which column of a frame is not numeric, or what kind of array it is."""
    for name in getattr(value, "columns", ()):
        column = value[name].to_numpy()
        is_number = column.dtype.kind in NUMERIC or (
            column.dtype.kind == "O"
            and all(
                each is None or type(each).__name__ == "NAType" or isinstance(each, int | float | np.number)
                for each in column
            )
        )
        if not is_number:
            return _refused(argument, f"has the non-numeric column {str(name)!r}", _advice(column))
    return _refused(argument, f"is not numeric (dtype {getattr(value, 'dtype', array.dtype)})", _advice(array))


def _advice(array: NDArray[Any]) -> str:
    if array.dtype.kind in "mM":
        return "Write dates as numbers, such as days since the first"
    if array.dtype.kind == "c":
        return "Pass real and imaginary parts as columns"
    return (
        "Encode it as numbers: labels of groups or classes with pandas.factorize, columns of a matrix with "
        "pandas.get_dummies; or write the model by formula, which takes frames as they are: bnnzoo.formula('y ~ "
        "x', frame)"
    )


def _refuse_not_finite(tensor: Tensor, value: Any, argument: str, gaps: bool) -> None:
    if not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()):
        return
    bad = torch.isinf(tensor) if gaps or bool(torch.isinf(tensor).any()) else torch.isnan(tensor)
    if not bool(bad.any()):
        return
    where = torch.nonzero(bad)[0].tolist()
    names = ["row", "column", *(f"axis {i}" for i in range(2, len(where)))]
    spot = ", ".join(f"{name} {index}" for name, index in zip(names, where, strict=False))
    if len(where) == 2 and hasattr(value, "columns"):
        spot += f" ({str(list(value.columns)[where[1]])!r})"
    number = tensor[tuple(where)].item()
    refused = _refused(
        argument,
        f"holds {number} at {spot or 'its only entry'}",
        "Remove or impute missing values before fitting, or let the model fill or mask them",
    )
    raise MissingValuesError(f"{refused} {IMPUTING}") if number != number else refused


def _refused(argument: str, what: str, advice: str) -> DataError:
    return DataError(f"Data refused: {argument} {what}. {advice}.")
