"""Tables on disk turned into arrays for a network: checked, split, standardised, and back to original units."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler

__all__ = ["Table", "TableError", "Task", "check_table", "infer_task", "prepare", "read_table", "restore_units"]

Task = Literal["regression", "classification"]

MAX_CLASSES_INFERRED = 10  # more distinct whole numbers than this are taken for a measured quantity
MAX_LEVELS = 50  # a text column with more levels is an identifier, not a category


class TableError(ValueError):
    """A table cannot be used; the message names the column, the row and the way out."""


@dataclass(frozen=True)
class Table:
    """A table ready for a network: ``x`` is [N, D] float64, ``y`` is [N] (float64, or int64 class codes).

    Attributes
    ----------
    task : {"regression", "classification"}
    target : str
        Name of the target column.
    features : tuple of str
        Names of the D inputs; a category ``c`` of column ``k`` is named ``k=c``.
    classes : tuple of str
        Names of the K classes, in the order of the codes; empty for regression.
    x_train, x_test : ndarray
        Inputs, standardised with the training part.
    y_train, y_test : ndarray
        Targets, standardised with the training part (regression) or class codes (classification).
    y_loc, y_scale : float
        Mean and standard deviation of the target over the training part; 0 and 1 for classification.
    test_rows : ndarray
        Row numbers, counted from 1, that were held out.
    """

    task: Task
    target: str
    features: tuple[str, ...]
    classes: tuple[str, ...]
    x_train: NDArray[np.float64]
    y_train: NDArray[np.generic]
    x_test: NDArray[np.float64]
    y_test: NDArray[np.generic]
    y_loc: float
    y_scale: float
    test_rows: NDArray[np.int64]


def read_table(path: Path, separator: str = ",") -> pd.DataFrame:
    """Read a CSV file with a header line into a frame with one row per observation.

    Parameters
    ----------
    path : Path
    separator : str
        What stands between two fields.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    TableError
        If there is no such file, or it is not a table of the kind described.
    """
    try:
        frame = pd.read_csv(path, sep=separator)
        header = pd.read_csv(path, sep=separator, header=None, nrows=1, dtype=str).iloc[0]
    except FileNotFoundError:
        raise TableError(f"There is no file {str(path)!r}.") from None
    except IsADirectoryError:
        raise TableError(f"{str(path)!r} is a folder; give the path of a CSV file.") from None
    except pd.errors.EmptyDataError:
        raise TableError(f"{str(path)!r} is empty; a header line and one line per observation are needed.") from None
    except (UnicodeDecodeError, pd.errors.ParserError, OSError) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{str(path)!r} cannot be read as a CSV file in UTF-8: {reason}.") from None
    repeated = header[header.duplicated()]
    if len(repeated):
        raise TableError(
            f"Column {repeated.iloc[0]!r} appears more than once in the header of {str(path)!r}; rename one."
        )
    if frame.empty:
        raise TableError(f"{str(path)!r} has a header but no rows.")
    if frame.shape[1] == 1:
        raise TableError(
            f"{str(path)!r} has one column when split at {separator!r}, header {str(frame.columns[0])!r}; "
            "if the fields are separated by something else, say so with --separator."
        )
    return frame


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
        On a target that is no column, missing or infinite values, numbers mixed with text, identifiers.
    """
    _check_target_exists(frame, target)
    for column in frame.columns:
        _check_no_missing(frame[column])
        if is_numeric_dtype(frame[column]):
            _check_finite(frame[column])
        else:
            _check_not_mixed(frame[column])
            if column != target:
                _check_levels(frame[column])


def _check_target_exists(frame: pd.DataFrame, target: str) -> None:
    if target in frame.columns:
        return
    names = [str(name) for name in frame.columns]
    close = difflib.get_close_matches(target, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise TableError(f"There is no target column {target!r} among the columns {', '.join(names)}.{hint}")


def _first_row(mask: pd.Series) -> int:
    return int(np.flatnonzero(mask.to_numpy())[0])


def _check_no_missing(column: pd.Series) -> None:
    missing = column.isna()
    if missing.any():
        raise TableError(
            f"Column {column.name!r} has {int(missing.sum())} missing value(s), the first in row "
            f"{_first_row(missing) + 1}; fill them in or remove those rows first."
        )


def _check_finite(column: pd.Series) -> None:
    infinite = ~column.astype(float).between(-np.inf, np.inf, inclusive="neither")
    if infinite.any():
        row = _first_row(infinite)
        raise TableError(
            f"Column {column.name!r} holds {column.iloc[row]} in row {row + 1}; only finite numbers can be used."
        )


def _check_not_mixed(column: pd.Series) -> None:
    text = pd.to_numeric(column.astype(str), errors="coerce").isna()
    if text.mean() < 0.5 and text.any():
        row = _first_row(text)
        raise TableError(
            f"Column {column.name!r} mixes numbers with text: row {row + 1} holds {column.iloc[row]!r}; "
            "correct it or remove the row."
        )


def _check_levels(column: pd.Series) -> None:
    num_levels = column.nunique()
    if num_levels > MAX_LEVELS:
        raise TableError(
            f"Text column {column.name!r} has {num_levels} different values in {len(column)} rows, too many for a "
            f"category (at most {MAX_LEVELS}); leave it out with --drop {column.name!r} or write it as numbers."
        )


def infer_task(target: pd.Series) -> Task:
    """Tell classification from regression by the target column.

    Text, booleans, and whole numbers with at most ten different values are classes; everything else is a quantity.

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


def prepare(
    frame: pd.DataFrame,
    target: str,
    task: Task | None = None,
    test_size: float = 0.2,
    seed: int = 0,
    drop: Sequence[str] = (),
) -> Table:
    """Check, split and standardise a frame.

    Everything that is estimated (means, standard deviations, the list of categories) comes from the training part
    alone. Constant columns become zeros; a category seen only in the held-out part becomes all zeros.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per observation; numeric, boolean and text columns.
    target : str
        Name of the target column.
    task : {"regression", "classification"}, optional
        Inferred from the target where None, see :func:`infer_task`.
    test_size : float
        Share of rows held out, between 0 and 1; stratified by class for classification.
    seed : int
        Seed of the split.
    drop : sequence of str
        Columns to leave out.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        With one sentence on what is wrong with which column, row or argument.
    """
    _check_arguments(frame, target, task, test_size, drop)
    frame = frame.drop(columns=list(drop))
    check_table(frame, target)
    if frame.shape[1] < 2:
        raise TableError(f"No input columns are left beside the target {target!r}.")
    task = task or infer_task(frame[target])
    y = _quantity(frame[target]) if task == "regression" else _classes(frame[target])
    train, test = _split(frame, y if task == "classification" else None, test_size, seed)
    x = frame.drop(columns=target)
    encoder = _encoder(x).fit(x.iloc[train])
    y_loc, y_scale = _scale(y.iloc[train], target) if task == "regression" else (0.0, 1.0)
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
        test_rows=np.sort(test) + 1,
    )


def _check_arguments(
    frame: pd.DataFrame, target: str, task: Task | None, test_size: float, drop: Sequence[str]
) -> None:
    if task not in (None, "regression", "classification"):
        raise TableError(f"task must be 'regression' or 'classification', not {task!r}.")
    if not 0.0 < test_size < 1.0:
        raise TableError(f"test_size must lie strictly between 0 and 1, not {test_size}.")
    unknown = [name for name in drop if name not in frame.columns]
    if unknown:
        raise TableError(
            f"Column {unknown[0]!r} cannot be dropped: the columns are {', '.join(map(str, frame.columns))}."
        )
    if target in drop:
        raise TableError(f"The target column {target!r} cannot be dropped.")


def _quantity(target: pd.Series) -> pd.Series:
    if not is_numeric_dtype(target):
        raise TableError(
            f"Target column {target.name!r} holds text such as {target.iloc[0]!r}, so regression is impossible; "
            "use classification."
        )
    return target.astype(np.float64)


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
    """Write a class as it stands in the file, not as numpy's type."""
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
            f"{len(frame)} rows with test_size {test_size} leave {len(train)} to learn from; at least 2 are needed."
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
    # StandardScaler leaves constant columns at zero instead of dividing by zero
    return ColumnTransformer(
        [("numeric", StandardScaler(), numeric), ("text", one_hot, text)], verbose_feature_names_out=False
    )


def _scale(y: pd.Series, target: str) -> tuple[float, float]:
    scaler = StandardScaler().fit(y.to_numpy()[:, None])
    if scaler.var_[0] == 0.0:
        raise TableError(
            f"Target column {target!r} is constant ({y.iloc[0]:g}) in the training part; there is nothing to learn."
        )
    return float(scaler.mean_[0]), float(scaler.scale_[0])


def restore_units(tree: xr.DataTree, table: Table) -> xr.DataTree:
    r"""Bring the predictions of a tree back to the target's own units; classification trees come back unchanged.

    With :math:`y = \mu + s z`, where the network was fitted to the standardised ``z``, draws and means become
    :math:`\mu + s z`, variances gain :math:`s^2`, log densities lose :math:`\log s` and entropies gain it.
    Latent variables (``posterior``, ``weights``) keep the standardised scale, on which their priors were stated.

    Parameters
    ----------
    tree : xarray.DataTree
        From :func:`bnnzoo.predict` or :func:`bnnzoo.posterior_predictive`.
    table : Table
        What the model was fitted to.

    Returns
    -------
    xarray.DataTree
    """
    if table.task == "classification":
        return tree
    loc, scale, log_scale = table.y_loc, table.y_scale, float(np.log(table.y_scale))
    restored = tree.copy()
    for group in ("posterior_predictive", "predictions", "observed_data", "predictions_observed_data"):
        if group in tree.children:
            restored[group].dataset = _affine(tree[group].to_dataset(), loc, scale)
    for group in ("log_likelihood", "predictions_log_likelihood"):
        if group in tree.children:
            restored[group].dataset = _affine(tree[group].to_dataset(), -log_scale, 1.0)
    if "conditional" in tree.children:
        conditional = tree["conditional"].to_dataset()
        rules = {"mean": (loc, scale), "variance": (0.0, scale**2), "entropy": (log_scale, 1.0)}
        known = {str(name): conditional[name] * b + a for name, (a, b) in rules.items() if name in conditional}
        restored["conditional"].dataset = conditional.assign(known)
    return restored


def _affine(dataset: xr.Dataset, loc: float, scale: float) -> xr.Dataset:
    with xr.set_options(keep_attrs=True):
        return dataset * scale + loc
