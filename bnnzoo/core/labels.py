"""Names of columns and rows that come with pandas objects: remembered at the fit, compared at every prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.core.minibatch import DataError
from bnnzoo.core.types import Data

__all__ = ["Labels", "in_fitted_order", "labels_of", "refuse_unaligned_rows"]


@dataclass(frozen=True, eq=False)
class Labels:
    """What pandas says about one argument of a model.

    Attributes
    ----------
    columns : tuple of str, optional
        Column names of a data frame.
    rows : ndarray, optional
        The index of a data frame or series; None for arrays, and for an index that only counts rows from zero.
    """

    columns: tuple[str, ...] | None = None
    rows: NDArray[Any] | None = None


def labels_of(data: Data) -> tuple[Labels, ...]:
    """Return the labels of every argument, without names where it is no pandas object.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=["first", "second"])
    >>> labels_of((frame, None))[0].columns
    ('a', 'b')
    """
    return tuple(Labels(_columns(value), _rows(value)) for value in data)


def refuse_unaligned_rows(data: Data, names: Sequence[str]) -> None:
    """Refuse pandas arguments of the same length whose indices differ: their rows would be paired by position.

    Raises
    ------
    DataError
        Naming both arguments and the first row that differs.
    """
    indexed = [(name, value.index) for name, value in zip(names, data, strict=True) if _is_pandas(value)]
    for (first, one), (second, other) in zip(indexed[:1] * len(indexed), indexed[1:], strict=False):
        if len(one) == len(other) and not one.equals(other):
            row = int(np.argmax([a != b for a, b in zip(one, other, strict=True)]))
            raise DataError(
                f"Data refused: the indices of arguments {first!r} and {second!r} differ, first at row {row} ({one[row]!r} "
                f"and {other[row]!r}). Align them with {second} = {second}.loc[{first}.index], or drop both indices with "
                f".reset_index(drop=True) if rows belong together by position."
            )


def in_fitted_order(data: Data, fitted: Sequence[Labels], names: Sequence[str]) -> Data:
    """Return arguments with the columns of data frames in the order of the fit.

    Raises
    ------
    DataError
        If a frame lacks a column of the fit, or has one that the fit did not.
    """
    pairs = zip(data, fitted, names, strict=False)
    ordered = tuple(_ordered(value, labels.columns, name) for value, labels, name in pairs)
    return ordered + data[len(ordered) :]


def _ordered(value: Any, fitted: tuple[str, ...] | None, name: str) -> Any:
    found = _columns(value)
    if fitted is None or found is None or found == fitted:
        return value
    missing = [column for column in fitted if column not in found]
    unknown = [column for column in found if column not in fitted]
    if missing or unknown:
        what = f"has no column {missing[0]!r}" if missing else f"has a column {unknown[0]!r} that the fit did not have"
        raise DataError(
            f"Data refused: argument {name!r} {what}; the model was fitted to the columns {', '.join(fitted)}, and these are "
            f"{', '.join(found)}."
        )
    return value[[value.columns[found.index(column)] for column in fitted]]


def _is_pandas(value: Any) -> bool:
    return isinstance(value, pd.DataFrame | pd.Series)


def _columns(value: Any) -> tuple[str, ...] | None:
    return tuple(str(column) for column in value.columns) if isinstance(value, pd.DataFrame) else None


def _rows(value: Any) -> NDArray[Any] | None:
    if not _is_pandas(value) or isinstance(value.index, pd.MultiIndex):
        return None
    counts = isinstance(value.index, pd.RangeIndex) and value.index.equals(pd.RangeIndex(len(value)))
    return None if counts else value.index.to_numpy()
