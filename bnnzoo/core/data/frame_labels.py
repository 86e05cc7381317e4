"""Names of rows, columns and dimensions that come with frames and labelled arrays: kept at the fit, compared at predictions."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from bnnzoo.core.data.arguments import leaves, parts_of
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.types import Data

__all__ = ["columns_of", "in_fitted_order", "refuse_unaligned_rows"]

DIMS = "{}.dims"
"""What the dimensions of a labelled array are kept under, beside its columns."""


def columns_of(data: Data, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the column names of the arguments that have such, by the argument's name, those within mappings and sequences too.

    A series has one column, its name. A labelled array has its dimensions besides, as ``"<argument>.dims"``.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    >>> columns_of((frame, {"t": pd.Series([1.0, 2.0], name="dose")}), ["x", "more"])
    {'x': ('a', 'b'), "more['t']": ('dose',)}
    """
    found = {}
    for path, value in _all_leaves(data, names):
        if columns := _columns(value):
            found[path] = columns
        if _is_labelled(value):
            found[DIMS.format(path)] = tuple(map(str, value.dims))
    return found


def refuse_unaligned_rows(data: Data, names: Sequence[str]) -> None:
    """Refuse arguments of the same length whose rows have different labels: they would be paired by position.

    Raises
    ------
    DataError
        Naming both arguments and the first row that differs.
    """
    pairs = ((path, value, _index(value)) for path, value in _all_leaves(data, names))
    indexed = [(path, value, index) for path, value, index in pairs if index is not None]
    for other, value, theirs in indexed[1:]:
        first, _, ours = indexed[0]
        if len(ours) == len(theirs) and not ours.equals(theirs):
            row = int(np.argmax([a != b for a, b in zip(ours, theirs, strict=True)]))
            is_pandas = hasattr(value, "iloc")
            align = f"{other}.loc[{first}.index]" if is_pandas else f"{other}.reindex_like({first})"
            drop = "both indices with .reset_index(drop=True)" if is_pandas else "the labels with .drop_vars(...)"
            raise DataError(
                f"Data refused: the indices of arguments {first!r} and {other!r} differ, first at row {row} ({_shown(ours[row])} "
                f"and {_shown(theirs[row])}). Align them with {other} = {align}, or drop {drop} if rows belong together by "
                f"position."
            )


def in_fitted_order(data: Data, fitted: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> Data:
    """Return arguments with the columns of frames, and the dimensions of labelled arrays, in the order of the fit.

    Raises
    ------
    DataError
        If a frame lacks a column of the fit, or has one that the fit did not; or if a series has another name.
    """

    def ordered(path: str, value: Any) -> Any:
        dims = fitted.get(DIMS.format(path), ())
        if _is_labelled(value) and dims != (own := tuple(map(str, value.dims))) and sorted(dims) == sorted(own):
            value = value.transpose(*sorted(value.dims, key=lambda dim: dims.index(str(dim))))
        return _ordered(value, fitted[path], path) if path in fitted and _columns(value) else value

    return tuple(_mapped(name, value, ordered) for name, value in zip(names, data, strict=True))


def _ordered(value: Any, fitted: tuple[str, ...], name: str) -> Any:
    found = _columns(value)
    if len(value.shape) == 1:
        if found != fitted and len(fitted) == 1:
            raise DataError(
                f"Data refused: argument {name!r} is {found[0]!r} here and was {fitted[0]!r} at the fit. Pass the same quantity; "
                f"if it is the same under another name, write {name}.rename({fitted[0]!r})."
            )
        return value
    missing = [column for column in fitted if column not in found]
    unknown = [column for column in found if column not in fitted]
    if missing or unknown:
        what = f"has no column {missing[0]!r}" if missing else f"has a column {unknown[0]!r} that the fit did not have"
        raise DataError(
            f"Data refused: argument {name!r} {what}; the model was fitted to the columns {', '.join(fitted)}, and these are "
            f"{', '.join(found)}."
        )
    order = [found.index(column) for column in fitted]
    return value.iloc[:, order] if hasattr(value, "iloc") else value[:, order]


def _columns(value: Any) -> tuple[str, ...]:
    """Return the names of columns, or of a series; nothing for what has none, pandas and the others not imported."""
    if hasattr(value, "columns"):
        is_frame = hasattr(value, "iloc") or hasattr(value, "get_column")
        return tuple(str(column) for column in value.columns) if is_frame else ()
    if _is_labelled(value) and len(value.dims) == 2:
        return tuple(str(label) for label in value[value.dims[1]].to_numpy()) if value.dims[1] in value.coords else ()
    is_series = hasattr(value, "to_numpy") and len(getattr(value, "shape", ())) == 1
    name = getattr(value, "name", None) if is_series else None
    return () if name is None or name == "" else (str(name),)


def _index(value: Any) -> Any:
    """Return the labels of the rows of a frame, a series or a labelled array; None where it has none."""
    if hasattr(value, "iloc"):
        return value.index
    return value.indexes.get(value.dims[0]) if _is_labelled(value) and value.dims else None


def _is_labelled(value: Any) -> bool:
    return hasattr(value, "dims") and hasattr(value, "coords") and hasattr(value, "indexes") and hasattr(value, "dtype")


def _shown(label: Any) -> str:
    """Return a label of a row without the type that numpy puts before it."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def _all_leaves(data: Data, names: Sequence[str]) -> list[tuple[str, Any]]:
    return [leaf for name, value in zip(names, data, strict=True) for leaf in leaves(name, value)]


def _mapped(path: str, value: Any, function: Callable[[str, Any], Any]) -> Any:
    """Return a value in which every leaf is replaced; the value itself where nothing changes."""
    parts = parts_of(path, value)
    if parts is None:
        return function(path, value)
    found = [(key, _mapped(inner, part, function)) for inner, key, part in parts]
    if all(new is old for (_, new), (_, _, old) in zip(found, parts, strict=True)):
        return value
    if isinstance(value, dict):
        changed = copy(value)
        changed.update(found)
        return changed
    items = [new for _, new in found]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
