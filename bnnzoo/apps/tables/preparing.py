"""Frames split, encoded and standardised into arrays for a network."""

from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bnnzoo.apps.tables.checking import infer_task, problems_of, refuse_if_any
from bnnzoo.apps.tables.missing_values import dates_to_days, drop_incomplete, impute
from bnnzoo.apps.tables.prepared_table import Missing, Table, TableError, Task

__all__ = ["prepare"]

MAX_SEED = 2**32 - 1  # of numpy's generators, which split the rows


def prepare(
    frame: pd.DataFrame,
    target: str,
    task: Task | None = None,
    test_size: float = 0.2,
    seed: int = 0,
    drop: Sequence[str] = (),
    missing: Missing = "refuse",
    beside: Sequence[str] = (),
    standardize_target: bool = True,
) -> Table:
    """Check, split and standardise a frame.

    Means, standard deviations and categories are estimated from the training part only. Constant columns become zeros, and
    so does a category that occurs in the held-out part only. Dates in ISO format (2024-12-31) become days.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per observation; numeric, boolean and text columns.
    target : str
        Name of the target column.
    task : {"regression", "classification"}, optional
        Default: inferred from the target, see :func:`infer_task`.
    test_size : float
        Fraction of rows held out, between 0 and 1; stratified by class for classification.
    seed : int
        Seed of the split.
    drop : sequence of str
        Columns to leave out.
    missing : {"refuse", "drop", "impute"}
        Refuse missing values, drop the rows that have any, or impute inputs: the training part's median for a number
        (with a column that says where it was missing), a category of its own for text. A target is never imputed: rows
        without one are dropped.
    beside : sequence of str
        Numeric columns that are no inputs and keep their values: an exposure, a weight, whether a time was censored. They are
        split with the rows, into ``beside_train`` and ``beside_test``.
    standardize_target : bool
        False for counts, proportions and times, which keep their values.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        If a column, row or argument is invalid. The message says which, and what to do.
    """
    kept = frame.drop(columns=[name for name in drop if name != target], errors="ignore")
    refuse_if_any(
        (
            *_bad_arguments(frame, target, task, test_size, seed, drop, missing),
            *_bad_columns(kept, target, beside, missing),
            *problems_of(kept, target, missing),
        )
    )
    if kept.shape[1] - len({*beside}) < 2:
        raise TableError(f"There are no input columns besides the target {target!r}.")
    complete, notes = np.arange(len(kept)), list[str]()
    if missing != "refuse":
        complete, notes = drop_incomplete(kept if missing == "drop" else kept[[target]])
    frame, notes_on_dates = dates_to_days(kept.iloc[complete].reset_index(drop=True), target)
    columns = {name: frame[name].to_numpy(dtype=bool if is_bool_dtype(frame[name]) else np.float64) for name in beside}
    frame = frame.drop(columns=list(beside))
    task = task or infer_task(frame[target])
    if task == "regression" and not is_numeric_dtype(frame[target]):
        raise TableError(
            f"Target column {target!r} contains text such as {frame[target].iloc[0]!r}, so regression is impossible; "
            "use classification."
        )
    y = frame[target].astype(np.float64) if task == "regression" else _classes(frame[target])
    train, test = _split(frame, y if task == "classification" else None, test_size, seed)
    x, notes_on_gaps = impute(frame.drop(columns=target), train)
    encoder = _encoder(x).fit(x.iloc[train])
    y_loc, y_scale = _scale(y.iloc[train], target) if task == "regression" and standardize_target else (0.0, 1.0)
    labels = sorted(y.unique()) if task == "classification" else []
    codes = (y - y_loc) / y_scale if task == "regression" else y.map({v: k for k, v in enumerate(labels)})
    values = codes.to_numpy(dtype=np.float64 if task == "regression" else np.int64)
    return Table(
        task=task,
        target=target,
        features=tuple(encoder.get_feature_names_out()),
        classes=tuple(str(label) for label in labels),
        x_train=np.asarray(encoder.transform(x.iloc[train]), dtype=np.float64),
        y_train=values[train],
        x_test=np.asarray(encoder.transform(x.iloc[test]), dtype=np.float64),
        y_test=values[test],
        y_loc=y_loc,
        y_scale=y_scale,
        test_rows=complete[np.sort(test)] + 1,
        notes=(*notes_on_dates, *notes, *notes_on_gaps),
        beside_train={name: values[train] for name, values in columns.items()},
        beside_test={name: values[test] for name, values in columns.items()},
        **_units(encoder),
    )


def _bad_arguments(
    frame: pd.DataFrame,
    target: str,
    task: Task | None,
    test_size: float,
    seed: int,
    drop: Sequence[str],
    missing: Missing,
) -> Iterator[str]:
    if task not in (None, "regression", "classification"):
        yield f"task must be 'regression' or 'classification', not {task!r}."
    if missing not in get_args(Missing):
        yield f"missing must be 'refuse', 'drop' or 'impute', not {missing!r}."
    if not 0.0 < test_size < 1.0:
        yield f"test_size must lie strictly between 0 and 1, not {test_size}."
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        yield f"seed must be a whole number from 0 to {MAX_SEED}, not {seed!r}."
    for name in drop:
        if name not in frame.columns:
            yield f"Column {name!r} cannot be dropped: the columns are {', '.join(map(str, frame.columns))}."
    if target in drop:
        yield f"The target column {target!r} cannot be dropped."


def _bad_columns(frame: pd.DataFrame, target: str, beside: Sequence[str], missing: Missing) -> Iterator[str]:
    for name in beside:
        if name == target or name not in frame.columns:
            others = ", ".join(str(column) for column in frame.columns if column != target)
            yield f"Column {name!r} cannot be kept beside the target: the other columns are {others}."
        elif not is_numeric_dtype(frame[name]):
            yield f"Column {name!r} is kept beside the target and must be numeric, but holds {frame[name].iloc[0]!r}."
        elif missing == "impute" and frame[name].isna().any():
            yield f"Column {name!r} is kept beside the target and is never imputed, but has missing values: use missing='drop'."


def _classes(target: pd.Series) -> pd.Series:
    counts = target.value_counts()
    if len(counts) < 2:
        raise TableError(
            f"Target column {target.name!r} has a single class, {_shown(counts.index[0])}; there is nothing to learn."
        )
    if counts.iloc[-1] < 2:
        raise TableError(
            f"Class {_shown(counts.index[-1])} of target column {target.name!r} has one row, so it cannot be both "
            "learned and held out; remove it, merge it with another class, or choose regression."
        )
    return target if is_numeric_dtype(target) else target.astype(str)


def _shown(label: object) -> str:
    """Format a class as in the file, not as numpy's type."""
    return repr(label) if isinstance(label, str) else f"{label:g}" if isinstance(label, float) else str(label)


def _split(
    frame: pd.DataFrame, stratify: pd.Series | None, test_size: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    try:
        train, test = train_test_split(np.arange(len(frame)), test_size=test_size, random_state=seed, stratify=stratify)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise TableError(f"{len(frame)} rows cannot be split with test_size {test_size}: {reason}.") from None
    if len(train) < 2:
        raise TableError(
            f"{len(frame)} rows with test_size {test_size} leave {len(train)} for training; at least 2 are needed."
        )
    return np.sort(train), np.sort(test)


def _encoder(x: pd.DataFrame) -> ColumnTransformer:
    is_number = [is_numeric_dtype(x[name]) for name in x.columns]
    numeric = [name for name, number in zip(x.columns, is_number, strict=True) if number]
    text = [name for name, number in zip(x.columns, is_number, strict=True) if not number]
    one_hot = OneHotEncoder(
        handle_unknown="ignore",
        sparse_output=False,
        feature_name_combiner=lambda name, category: f"{name}={category}",
    )
    # StandardScaler maps constant columns to zero instead of dividing by zero
    return ColumnTransformer(
        [("numeric", StandardScaler(), numeric), ("text", one_hot, text)], verbose_feature_names_out=False
    )


def _units(encoder: ColumnTransformer) -> dict[str, NDArray[np.float64]]:
    """Return mean and scale of the numeric columns."""
    scaler = encoder.named_transformers_["numeric"]
    known = hasattr(scaler, "mean_")  # not where there is no numeric column
    return {"x_loc": scaler.mean_ if known else np.zeros(0), "x_scale": scaler.scale_ if known else np.ones(0)}


def _scale(y: pd.Series, target: str) -> tuple[float, float]:
    scaler = StandardScaler().fit(y.to_numpy()[:, None])
    if scaler.var_[0] == 0.0:
        raise TableError(
            f"Target column {target!r} is constant ({y.iloc[0]:g}) in the training part; there is nothing to learn."
        )
    return float(scaler.mean_[0]), float(scaler.scale_[0])
