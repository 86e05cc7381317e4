"""Checks of a frame, and the task that its target suggests."""

import difflib
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

from bnnzoo.apps.tables.prepared_table import Missing, TableError, Task

__all__ = ["check_table", "infer_task", "is_dates", "problems_of", "refuse_if_any"]

MAX_CLASSES_INFERRED = 10  # a target with more distinct whole numbers than this is treated as a quantity
MAX_LEVELS = 50  # a text column with more levels is an identifier, not a category

_ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?"
_OTHER_DATE = r"\d{1,2}([./-])\d{1,2}\1\d{2,4}|\d{4}([./])\d{1,2}\2\d{1,2}"
_DECIMAL_COMMA = r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?"


def check_table(frame: pd.DataFrame, target: str, missing: Missing = "refuse") -> None:
    """Refuse a frame that cannot be used, naming every offending column with its first offending row (counted from 1).

    Parameters
    ----------
    frame : pandas.DataFrame
    target : str
        Name of the target column.
    missing : {"refuse", "drop", "impute"}
        Whether missing values are a problem, see :func:`bnnzoo.apps.tables.prepare`.

    Raises
    ------
    TableError
        If the target is not a column, values are missing or infinite, or a column has no name, mixes numbers with text,
        holds decimal commas or dates that are not in ISO format, or is an identifier.
    """
    refuse_if_any(problems_of(frame, target, missing))


def refuse_if_any(problems: Iterable[str]) -> None:
    """Raise one :class:`TableError` for all the problems, if there are any."""
    found = list(problems)
    if found:
        raise TableError(*found)


def problems_of(frame: pd.DataFrame, target: str, missing: Missing = "refuse") -> Iterator[str]:
    """Yield a sentence for each problem of a frame; rows are counted from 1, whatever its index."""
    frame = frame.reset_index(drop=True)
    if target not in frame.columns:
        names = [str(name) for name in frame.columns]
        close = difflib.get_close_matches(target, names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        yield f"There is no target column {target!r} among the columns {', '.join(names)}.{hint}"
    for name in frame.columns:
        column = frame[name]
        if str(name).startswith("Unnamed: "):
            yield f"Column {list(frame.columns).index(name) + 1} has no name in the header; name it, or use --drop {name!r}."
        elif missing == "refuse" or column.isna().all():
            gaps = column.isna()
            count = f"Column {column.name!r} has {int(gaps.sum())} missing value(s)"
            if gaps.any():
                count += f", the first in row {int(np.flatnonzero(gaps.to_numpy())[0]) + 1}"
                if gaps.all() and missing != "refuse":
                    yield f"{count}, and no others; leave it out with --drop {column.name!r}."
                else:
                    yield f"{count}; fill them in or remove those rows first, or use --missing drop or impute."
        present = column[column.notna()]
        if is_numeric_dtype(column):
            infinite = present[np.isinf(present.astype(float))]
            if len(infinite):
                yield (
                    f"Column {present.name!r} has the value {infinite.iloc[0]} in row {infinite.index[0] + 1}; "
                    "values must be finite."
                )
        elif len(present):
            yield from _problems_of_text(present, name == target)


def is_dates(column: pd.Series) -> bool:
    """Tell whether a column holds dates, as such or as text in ISO format (2024-12-31, with or without a time)."""
    return is_datetime64_any_dtype(column) or (not is_numeric_dtype(column) and _all_match(column, _ISO_DATE))


def _all_match(column: pd.Series, pattern: str) -> bool:
    present = column[column.notna()].astype(str).str.strip()
    return bool(len(present)) and bool(present.str.fullmatch(pattern).all())


def _problems_of_text(present: pd.Series, is_target: bool) -> Iterator[str]:
    """Yield what is wrong with a column of text, of which only the values that are there are given."""
    name = present.name
    text = pd.to_numeric(present.astype(str), errors="coerce").isna()
    if is_dates(present) or _all_match(present, _OTHER_DATE):
        first = str(present.iloc[0])
        if is_target:
            yield f"Target column {name!r} holds dates such as {first!r}; write it as a number, such as days since an event."
        elif not is_dates(present):
            yield f"Column {name!r} holds dates such as {first!r}; write them as year-month-day, such as 2024-12-31."
        else:
            wrong = present[pd.to_datetime(present, errors="coerce", format="ISO8601").isna()]
            if len(wrong):
                yield f"Column {name!r} holds dates, but there is no {wrong.iloc[0]!r} (row {wrong.index[0] + 1}); correct it."
    elif text.any() and _all_match(present, _DECIMAL_COMMA):
        example = present[text].iloc[0]
        yield f"Column {name!r} holds numbers with decimal commas, such as {example!r}; use --decimal ','."
    elif text.any() and text.mean() < 0.5:
        row = present[text].index[0]
        yield (
            f"Column {name!r} mixes numbers with text: row {row + 1} has {present[text].iloc[0]!r}; "
            "correct it or remove the row."
        )
    elif not is_target and present.nunique() > MAX_LEVELS:
        yield (
            f"Text column {name!r} has {present.nunique()} different values in {len(present)} rows, too many for a "
            f"category (at most {MAX_LEVELS}); leave it out with --drop {name!r} or write it as numbers."
        )


def infer_task(target: pd.Series) -> Task:
    """Infer the task, classification or regression, from the target column.

    Text, booleans, and integers with at most ten different values are classes; everything else is a quantity.

    Parameters
    ----------
    target : pandas.Series

    Returns
    -------
    {"regression", "classification"}

    Examples
    --------
    >>> infer_task(pd.Series(["yes", "no", "yes"])), infer_task(pd.Series([0.5, 1.5, 2.5]))
    ('classification', 'regression')
    """
    if is_bool_dtype(target) or not is_numeric_dtype(target):
        return "classification"
    is_whole = bool((target % 1 == 0).all())
    return "classification" if is_whole and target.nunique() <= MAX_CLASSES_INFERRED else "regression"
