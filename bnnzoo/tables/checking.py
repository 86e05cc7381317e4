"""Checks of a frame, and the task that its target suggests."""

import difflib

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from bnnzoo.tables.table import TableError, Task

__all__ = ["check_table", "infer_task"]

MAX_CLASSES_INFERRED = 10  # a target with more distinct whole numbers than this is treated as a quantity
MAX_LEVELS = 50  # a text column with more levels is an identifier, not a category


def check_table(frame: pd.DataFrame, target: str) -> None:
    """Refuse a frame that cannot be used, naming the first offending column and row (rows counted from 1).

    Parameters
    ----------
    frame : pandas.DataFrame
    target : str
        Name of the target column.

    Raises
    ------
    TableError
        If the target is not a column, values are missing or infinite, a column mixes numbers with text, or is an identifier.
    """
    _refuse_missing_target(frame, target)
    for column in frame.columns:
        _refuse_missing_values(frame[column])
        if is_numeric_dtype(frame[column]):
            _refuse_infinite(frame[column])
        else:
            _refuse_mixed(frame[column])
            if column != target:
                _refuse_identifier(frame[column])


def _refuse_missing_target(frame: pd.DataFrame, target: str) -> None:
    if target in frame.columns:
        return
    names = [str(name) for name in frame.columns]
    close = difflib.get_close_matches(target, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise TableError(f"There is no target column {target!r} among the columns {', '.join(names)}.{hint}")


def _first_row(mask: pd.Series) -> int:
    return int(np.flatnonzero(mask.to_numpy())[0])


def _refuse_missing_values(column: pd.Series) -> None:
    missing = column.isna()
    if missing.any():
        raise TableError(
            f"Column {column.name!r} has {int(missing.sum())} missing value(s), the first in row "
            f"{_first_row(missing) + 1}; fill them in or remove those rows first."
        )


def _refuse_infinite(column: pd.Series) -> None:
    infinite = ~column.astype(float).between(-np.inf, np.inf, inclusive="neither")
    if infinite.any():
        row = _first_row(infinite)
        raise TableError(
            f"Column {column.name!r} has the value {column.iloc[row]} in row {row + 1}; values must be finite."
        )


def _refuse_mixed(column: pd.Series) -> None:
    text = pd.to_numeric(column.astype(str), errors="coerce").isna()
    if text.mean() < 0.5 and text.any():
        row = _first_row(text)
        raise TableError(
            f"Column {column.name!r} mixes numbers with text: row {row + 1} has {column.iloc[row]!r}; "
            "correct it or remove the row."
        )


def _refuse_identifier(column: pd.Series) -> None:
    num_levels = column.nunique()
    if num_levels > MAX_LEVELS:
        raise TableError(
            f"Text column {column.name!r} has {num_levels} different values in {len(column)} rows, too many for a "
            f"category (at most {MAX_LEVELS}); leave it out with --drop {column.name!r} or write it as numbers."
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
