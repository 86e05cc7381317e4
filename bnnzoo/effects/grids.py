"""Frames at which effects are evaluated, and the two values that a comparison compares."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "ContrastFrames",
    "contrasts_of",
    "datagrid",
    "inputs_of",
    "is_numeric",
    "refuse_unknown_column",
    "rows_of",
    "typical",
]

PAIRS = ("reference", "sequential", "pairwise", "all", "minmax", "revreference", "revsequential", "revpairwise")
SPREADS = ("iqr", "sd", "2sd", "minmax")


@dataclass(frozen=True)
class ContrastFrames:
    """Two frames with all rows of another, but for one variable, and how they are called."""

    variable: str
    label: str
    low: pd.DataFrame
    high: pd.DataFrame


def is_numeric(column: "pd.Series[Any]") -> bool:
    """Tell whether a column holds numbers that are no truth values."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def typical(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row: the mean of numeric columns, rounded where they hold whole numbers, and the mode of others.

    Examples
    --------
    >>> typical(pd.DataFrame({"x": [1.0, 2.0], "g": ["a", "a"]})).to_dict("records")
    [{'x': 1.5, 'g': 'a'}]
    """
    values = {}
    for name, column in frame.items():
        if is_numeric(column):
            values[name] = [round(column.mean()) if pd.api.types.is_integer_dtype(column) else column.mean()]
        else:
            values[name] = [column.mode().iloc[0]]
    return pd.DataFrame(values)


def datagrid(frame: pd.DataFrame, /, **values: Any) -> pd.DataFrame:
    """Return all combinations of some values, with other columns at their means and modes.

    Parameters
    ----------
    frame : DataFrame
        Such as the training data.
    **values
        Values of columns: a number or text, a sequence of them, or a function of the column that returns one, such as
        ``numpy.unique``.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [1.0, 3.0], "g": ["a", "b"]})
    >>> datagrid(frame, g=["a", "b"]).to_dict("list")
    {'x': [2.0, 2.0], 'g': ['a', 'b']}
    """
    for name in values:
        refuse_unknown_column(name, frame)
    lists = {name: _listed(value(frame[name]) if callable(value) else value) for name, value in values.items()}
    base = typical(frame)
    rows = [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]
    found = pd.concat([base] * len(rows), ignore_index=True)
    for name in lists:
        found[name] = [row[name] for row in rows]
    return found


def rows_of(newdata: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows at which effects are evaluated: the training data, their means and modes, or a given frame."""
    if newdata is None:
        return frame.reset_index(drop=True)
    if isinstance(newdata, str):
        if newdata != "mean":
            raise ValueError(f"newdata={newdata!r}: write 'mean', a frame, or datagrid(frame, x=[...]).")
        return typical(frame)
    found = pd.DataFrame(newdata) if isinstance(newdata, dict) else newdata
    if not isinstance(found, pd.DataFrame):
        found = pd.DataFrame({name: found[name].to_numpy() for name in found.columns})
    if not len(found):
        raise ValueError("newdata has no rows.")
    return found.reset_index(drop=True)


def inputs_of(frame: pd.DataFrame, outcome: Sequence[str]) -> list[str]:
    """Return the columns of a frame that are no outcome."""
    return [str(name) for name in frame.columns if name not in outcome]


def refuse_unknown_column(name: str, frame: pd.DataFrame) -> None:
    """Refuse the name of a column that a frame does not have."""
    if name not in frame.columns:
        columns = [str(column) for column in frame.columns]
        folded = {column.lower(): column for column in columns}
        close = [folded[each] for each in get_close_matches(str(name).lower(), folded, 1)]
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"There is no column {name!r}; the columns are {', '.join(columns)}.{hint}")


def contrasts_of(variable: str, wanted: Any, rows: pd.DataFrame, frame: pd.DataFrame) -> Iterator[ContrastFrames]:
    """Yield the comparisons of a variable, in the vocabulary of marginaleffects.

    Parameters
    ----------
    variable : str
    wanted : object
        For numbers a gap around the observed value, two values, or one of ``"iqr"``, ``"sd"``, ``"2sd"``, ``"minmax"``; for
        categories two values, or ``"reference"``, ``"sequential"``, ``"pairwise"``, ``"all"``, ``"minmax"`` and their reverses.
        None is a gap of one, or ``"reference"``.
    rows : DataFrame
        Where effects are evaluated.
    frame : DataFrame
        The training data, which have the spreads and the levels.
    """
    refuse_unknown_column(variable, frame)
    column = frame[variable]
    if isinstance(wanted, list | tuple | np.ndarray) and len(wanted) == 2:
        yield _contrast(variable, rows, wanted[0], wanted[1])
    elif is_numeric(column):
        yield _of_numbers(variable, wanted, rows, column)
    else:
        levels = (
            list(column.cat.categories) if isinstance(column.dtype, pd.CategoricalDtype) else sorted(column.unique())
        )
        for low, high in _pairs(variable, "reference" if wanted is None else wanted, levels):
            yield _contrast(variable, rows, low, high)


def _of_numbers(variable: str, wanted: Any, rows: pd.DataFrame, column: "pd.Series[Any]") -> ContrastFrames:
    values = rows[variable].astype(float)
    if wanted is None or (isinstance(wanted, int | float) and not isinstance(wanted, bool)):
        gap = 1 if wanted is None else wanted
        return ContrastFrames(
            variable,
            f"+{gap:g}",
            rows.assign(**{variable: values - gap / 2}),
            rows.assign(**{variable: values + gap / 2}),
        )
    if wanted not in SPREADS:
        raise ValueError(
            f"variables[{variable!r}]={wanted!r}: write a number, two values, or one of {', '.join(SPREADS)}."
        )
    mean, sd = float(column.mean()), float(column.std(ddof=1))
    ends = {
        "iqr": (column.quantile(0.25), column.quantile(0.75), "Q3 - Q1"),
        "sd": (mean - sd / 2, mean + sd / 2, "(x + sd/2) - (x - sd/2)"),
        "2sd": (mean - sd, mean + sd, "(x + sd) - (x - sd)"),
        "minmax": (column.min(), column.max(), "Max - Min"),
    }
    low, high, label = ends[wanted]
    return _contrast(variable, rows, low, high, label)


def _contrast(variable: str, rows: pd.DataFrame, low: Any, high: Any, label: str | None = None) -> ContrastFrames:
    return ContrastFrames(
        variable, label or f"{high} - {low}", rows.assign(**{variable: low}), rows.assign(**{variable: high})
    )


def _pairs(variable: str, wanted: Any, levels: list[Any]) -> list[tuple[Any, Any]]:
    if wanted not in PAIRS:
        raise ValueError(f"variables[{variable!r}]={wanted!r}: write two levels, or one of {', '.join(PAIRS)}.")
    kind = wanted.removeprefix("rev")
    if kind == "reference":
        found = [(levels[0], level) for level in levels[1:]]
    elif kind == "sequential":
        found = list(itertools.pairwise(levels))
    elif kind == "minmax":
        found = [(levels[0], levels[-1])]
    elif kind == "all":
        found = [(a, b) for a in levels for b in levels if a != b]
    else:
        found = list(itertools.combinations(levels, 2))
    return [(high, low) for low, high in found] if wanted.startswith("rev") else found


def _listed(value: Any) -> list[Any]:
    return (
        list(value)
        if isinstance(value, Mapping | Sequence | np.ndarray | pd.Series) and not isinstance(value, str)
        else [value]
    )
