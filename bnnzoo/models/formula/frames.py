"""Frames as formulas see them: numeric columns and design matrices, encoded as at the fit."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
from formulaic import ModelSpec, model_matrix
from formulaic.errors import FormulaicError
from numpy.typing import NDArray

from bnnzoo.core.data.conversion import DataError
from bnnzoo.models.formula.parsing import FormulaError

__all__ = [
    "Design",
    "Levels",
    "as_frame",
    "is_frame",
    "matrix_of",
    "numbers_of",
    "refuse_missing_columns",
    "variables_of",
]

type Array = NDArray[np.floating[Any]]


def is_frame(value: object) -> bool:
    """Tell whether a value has columns with names: a frame of pandas or polars, or a mapping of columns."""
    return hasattr(value, "columns") or (isinstance(value, dict) and bool(value))


def as_frame(value: Any) -> pd.DataFrame:
    """Return a frame of pandas.

    Examples
    --------
    >>> as_frame({"a": [1, 2]}).shape
    (2, 1)
    """
    if isinstance(value, pd.DataFrame):
        return value
    if isinstance(value, dict):
        return pd.DataFrame(value)
    return pd.DataFrame({name: np.asarray(value[name].to_numpy()) for name in value.columns})


def refuse_missing_columns(frame: pd.DataFrame, names: Iterable[str], what: str) -> None:
    """Refuse a frame without a column that a formula needs.

    Raises
    ------
    DataError
        Naming the column, those that there are, and one with a similar name.
    """
    for name in names:
        columns = [str(column) for column in frame.columns]
        if name not in columns and not any(
            column.startswith(f"{name}.") for column in columns
        ):  # formulaic's `a.b` is a
            folded = {column.lower(): column for column in columns}
            close = [folded[each] for each in get_close_matches(name.lower(), folded, 1)]
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise DataError(
                f"Data refused: {what} needs a column {name!r}, and the frame has {', '.join(columns) or 'none'}.{hint}"
            )


@dataclass(frozen=True)
class Design:
    """A part of a formula that formulaic reads: a design matrix whose transforms and categories are those of the training data.

    Attributes
    ----------
    spec : ModelSpec
    levels : mapping of str to list
        Categories of each categorical factor.
    """

    spec: ModelSpec
    levels: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, frame: pd.DataFrame) -> "Design":
        """Return the design of a part of a formula; its transforms learn from the frame."""
        refuse_missing_columns(frame, variables_of(text, frame), f"{text!r} in the formula")
        for name in variables_of(text, frame):
            if name in frame.columns and pd.api.types.is_datetime64_any_dtype(frame[name]):
                raise DataError(
                    f"Data refused: {name!r} holds dates. Write them as numbers, such as the days since the first: "
                    f"(frame[{name!r}] - frame[{name!r}].min()).dt.days."
                )
        spec = _evaluated(text, frame, text).model_spec
        levels = {
            str(name): list(state["categories"])
            for name, (_, state) in spec.encoder_state.items()
            if "categories" in state
        }
        return cls(spec, levels)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.spec.column_names]

    def terms(self) -> dict[str, slice]:
        """Return the columns of each term."""
        return {str(term): columns for term, columns in self.spec.term_slices.items()}

    def matrix(self, frame: pd.DataFrame) -> Array:
        """Return the design matrix ``[N, P]`` for a frame.

        Raises
        ------
        DataError
            If a column is missing, or holds missing values or categories that the training data did not have.
        """
        refuse_missing_columns(frame, sorted(self.spec.required_variables), "the formula")
        for name, known in self.levels.items():
            column = name.strip("`")
            if column not in frame.columns:
                continue
            new = [level for level in pd.unique(frame[column].dropna()) if level not in known]
            if new:
                level = new[0].item() if isinstance(new[0], np.generic) else new[0]
                row = int(np.flatnonzero(frame[column] == new[0])[0])
                raise DataError(
                    f"Data refused: {column!r} is {level!r} at row {row}, which the training data did not have; they had "
                    f"{', '.join(map(str, known))}."
                )
            if pd.api.types.is_numeric_dtype(frame[column]):
                frame = frame.assign(
                    **{column: pd.Categorical(frame[column], categories=known)}
                )  # as in the training data
        found = np.asarray(_evaluated(self.spec, frame, "the formula"), dtype=float)
        _refuse_not_finite(found, self.names, frame)
        return found.reshape(len(frame), len(self.names))


@dataclass(frozen=True)
class Levels:
    """Levels of a grouping factor, which may be made of several columns: ``school:class``."""

    text: str
    columns: tuple[str, ...]
    known: tuple[str, ...]

    @classmethod
    def of(cls, text: str, frame: pd.DataFrame) -> "Levels":
        """Return the levels that a frame has, in order."""
        columns = tuple(part.strip().strip("`") for part in text.split(":"))
        keys = _keys(columns, frame, text)
        return cls(text, columns, tuple(str(level) for level in pd.unique(keys.sort_values(key=_sortable))))

    def codes(self, frame: pd.DataFrame) -> tuple[NDArray[np.integer[Any]], list[str]]:
        """Return the code ``[N]`` of each row's level; new levels count on from the known ones, and are returned, too."""
        keys = _keys(self.columns, frame, self.text).astype(str)
        new = [str(level) for level in pd.unique(keys[~keys.isin(self.known)])]
        places = {level: place for place, level in enumerate([*self.known, *new])}
        return keys.map(places).to_numpy(dtype=np.int64), new


def numbers_of(text: str, frame: pd.DataFrame, *, missing: bool = False) -> Array:
    """Return a numeric column, or a function of columns, ``[N]``.

    Parameters
    ----------
    text : str
        Such as ``"dose"`` or ``"log(dose)"``.
    frame : DataFrame
    missing : bool
        Whether missing values are allowed, and returned as NaN.

    Raises
    ------
    DataError
        If a column is missing or not numeric, or a value is missing.
    """
    name = text.strip().strip("`")
    if name in frame.columns:
        column = frame[name]
        if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
            raise DataError(
                f"Data refused: {name!r} holds "
                f"{'dates' if pd.api.types.is_datetime64_any_dtype(column) else 'text or categories'}, where the formula needs "
                f"numbers."
            )
        values = column.to_numpy(dtype=float, na_value=np.nan)
    else:
        refuse_missing_columns(frame, variables_of(text, frame), f"{text!r} in the formula")
        found = np.asarray(_evaluated(f"0 + {text}", frame, text), dtype=float)
        if found.shape[1] != 1:
            raise DataError(f"Data refused: {text!r} gives {found.shape[1]} columns, where the formula needs one.")
        values = found[:, 0]
    if not missing:
        _refuse_not_finite(values[:, None], [name], frame)
    return values


def matrix_of(texts: Iterable[str], frame: pd.DataFrame) -> Array:
    """Return several numeric columns ``[N, D]``; see `numbers_of`."""
    return np.stack([numbers_of(text, frame) for text in texts], -1)


def variables_of(text: str, frame: pd.DataFrame) -> list[str]:
    """Return the names of the columns that a part of a formula uses."""
    if (name := text.strip().strip("`")) in frame.columns:
        return [name]
    if name == "." or "+ ." in text:
        raise FormulaError("'.' stands for no columns here: write the names of those that are meant.")
    try:
        return sorted(ModelSpec(formula=f"0 + {text}").required_variables)
    except (FormulaicError, SyntaxError) as error:
        raise FormulaError(f"{text!r} cannot be read: {_first_line(error)}") from None


def _evaluated(spec: Any, frame: pd.DataFrame, text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # logarithms of zero and the like are refused by row
            return model_matrix(spec, frame, na_action="ignore")
    except (FormulaicError, SyntaxError, TypeError, ValueError) as error:
        raise FormulaError(f"{text!r} cannot be evaluated on the frame: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _keys(columns: tuple[str, ...], frame: pd.DataFrame, text: str) -> "pd.Series[Any]":
    refuse_missing_columns(frame, columns, f"the group {text!r}")
    for name in columns:
        if frame[name].isna().any():
            row = int(np.flatnonzero(frame[name].isna())[0])
            raise DataError(f"Data refused: the group {name!r} is missing at row {row}. {_dropping(name)}")
    if len(columns) == 1:
        return frame[columns[0]].astype(object)
    joined = frame[list(columns)].astype(str).agg(":".join, axis=1)
    return joined


def _sortable(keys: "pd.Series[Any]") -> Any:
    numeric = pd.to_numeric(keys, errors="coerce")
    return keys.astype(str) if numeric.isna().any() else numeric


def _refuse_not_finite(values: Array, names: list[str], frame: pd.DataFrame) -> None:
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    row, place = (int(each) for each in np.argwhere(bad)[0])
    found = "is missing" if np.isnan(values[row, place]) else "is infinite"
    raise DataError(
        f"Data refused: {names[place]!r} {found} at row {row} ({frame.index[row]!r}). {_dropping(names[place])}"
    )


def _dropping(name: str) -> str:
    return f"Remove such rows, frame.dropna(subset=[...]), or impute a numeric column within the model: mi({name})."
