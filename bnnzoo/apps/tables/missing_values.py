"""Dates as numbers, and rows or cells with missing values."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from bnnzoo.apps.tables.checking import is_dates

__all__ = ["dates_to_days", "drop_incomplete", "impute"]

MISSING = "missing"  # the category of text that is not there


def dates_to_days(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, list[str]]:
    """Return a frame whose columns of dates are days since 1970-01-01, and a sentence for each of them.

    Examples
    --------
    >>> frame = pd.DataFrame({"seen": ["1970-01-02", "1970-01-03 12:00"], "y": [0.5, 1.5]})
    >>> dates_to_days(frame, "y")[0]["seen"].tolist()
    [1.0, 2.5]
    """
    names = [name for name in frame.columns if name != target and is_dates(frame[name])]
    moments = {name: pd.to_datetime(frame[name], format="ISO8601") for name in names}
    days = {name: (each - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1) for name, each in moments.items()}
    frame = frame.assign(**days)
    return frame, [f"Dates in column {name!r} became a number of days." for name in names]


def drop_incomplete(frame: pd.DataFrame) -> tuple[NDArray[np.int64], list[str]]:
    """Return the positions of rows without missing values, and a sentence if there are others."""
    complete = np.flatnonzero(frame.notna().all(axis=1).to_numpy())
    dropped = len(frame) - len(complete)
    what = f"no {frame.columns[0]!r}" if frame.shape[1] == 1 else "missing values"
    return complete, [f"{dropped} of {len(frame)} rows have {what} and were left out."] if dropped else []


def impute(x: pd.DataFrame, train: NDArray[np.int64]) -> tuple[pd.DataFrame, list[str]]:
    """Return inputs without missing values, and a sentence for each column that had some.

    A number becomes the median of the training part, and a further column ``k=missing`` says where. Text becomes the
    category ``missing``.

    Examples
    --------
    >>> x = pd.DataFrame({"age": [30.0, None, 40.0], "colour": ["red", "blue", None]})
    >>> impute(x, np.array([0, 2]))[0].to_numpy().tolist()
    [[30.0, 'red', 0.0], [35.0, 'blue', 1.0], [40.0, 'missing', 0.0]]
    """
    columns: dict[Any, pd.Series] = {name: x[name] for name in x.columns}
    notes = []
    for name in x.columns[x.isna().any()]:
        gaps = x[name].isna()
        if is_numeric_dtype(x[name]):
            median = float(x[name].iloc[train].median())
            columns[name] = x[name].astype(float).fillna(0.0 if np.isnan(median) else median)
            columns[f"{name}={MISSING}"] = gaps.astype(float)
            notes.append(f"{int(gaps.sum())} missing value(s) of {name!r} became the training median, {median:g}.")
        else:
            columns[name] = x[name].astype(str).where(~gaps, MISSING)
            notes.append(f"{int(gaps.sum())} missing value(s) of {name!r} became a category of their own.")
    return pd.DataFrame(columns), notes
