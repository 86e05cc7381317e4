"""Names of columns and rows that come with frames and labelled arrays: remembered at the fit, compared at every prediction."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bnnzoo.core.minibatch import DataError
from bnnzoo.core.types import Data

__all__ = ["columns_of", "in_fitted_order", "refuse_unaligned_rows"]


def columns_of(data: Data, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the column names of the arguments that have such, data frames and labelled arrays, by the argument's name.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    >>> columns_of((frame, None), ["x", "y"])
    {'x': ('a', 'b')}
    """
    pairs = zip(names, data, strict=True)
    return {name: _columns(value) for name, value in pairs if _is_frame(value)}


def refuse_unaligned_rows(data: Data, names: Sequence[str]) -> None:
    """Refuse pandas arguments of the same length whose indices differ: their rows would be paired by position.

    Raises
    ------
    DataError
        Naming both arguments and the first row that differs.
    """
    pairs = zip(names, data, strict=True)
    indexed = [(name, value.index) for name, value in pairs if hasattr(value, "iloc")]
    for other, theirs in indexed[1:]:
        first, ours = indexed[0]
        if len(ours) == len(theirs) and not ours.equals(theirs):
            row = int(np.argmax([a != b for a, b in zip(ours, theirs, strict=True)]))
            raise DataError(
                f"Data refused: the indices of arguments {first!r} and {other!r} differ, first at row {row} ({_shown(ours[row])} "
                f"and {_shown(theirs[row])}). Align them with {other} = {other}.loc[{first}.index], or drop both indices with "
                f".reset_index(drop=True) if rows belong together by position."
            )


def _shown(label: Any) -> str:
    """Return a label of a row without the type that numpy puts before it."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def in_fitted_order(data: Data, fitted: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> Data:
    """Return arguments with the columns of data frames in the order of the fit.

    Raises
    ------
    DataError
        If a frame lacks a column of the fit, or has one that the fit did not.
    """
    pairs = zip(names, data, strict=True)
    return tuple(
        _ordered(value, fitted[name], name) if name in fitted and _is_frame(value) else value for name, value in pairs
    )


def _ordered(frame: Any, fitted: tuple[str, ...], name: str) -> Any:
    found = _columns(frame)
    missing = [column for column in fitted if column not in found]
    unknown = [column for column in found if column not in fitted]
    if missing or unknown:
        what = f"has no column {missing[0]!r}" if missing else f"has a column {unknown[0]!r} that the fit did not have"
        raise DataError(
            f"Data refused: argument {name!r} {what}; the model was fitted to the columns {', '.join(fitted)}, and these are "
            f"{', '.join(found)}."
        )
    order = [found.index(column) for column in fitted]
    return frame.iloc[:, order] if hasattr(frame, "iloc") else frame[:, order]


def _columns(frame: Any) -> tuple[str, ...]:
    names = frame.columns if hasattr(frame, "columns") else frame[frame.dims[1]].to_numpy()
    return tuple(str(column) for column in names)


def _is_frame(value: Any) -> bool:
    """Tell whether a value has named columns: a frame of pandas or polars, or a labelled array; without importing any of them."""
    if hasattr(value, "columns"):
        return hasattr(value, "iloc") or hasattr(value, "get_column")
    dims: tuple[Any, ...] = getattr(value, "dims", ())
    return len(dims) == 2 and hasattr(value, "coords") and dims[1] in value.coords
