"""Models as they are written on the command line: a file of Python, or a formula, and their data from a table."""

import runpy
from pathlib import Path
from typing import Any

import pandas as pd

from bnnzoo.apps.tables.prepared_table import TableError
from bnnzoo.core.data.arguments import argument_names, parameters_of
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.types import Model
from bnnzoo.models.formula import FormulaError, formula

__all__ = ["model_and_data"]


def model_and_data(
    written: str, frame: pd.DataFrame, likelihood: str = "gaussian"
) -> tuple[Model, tuple[Any, ...], list[str]]:
    """Return a model, its arguments from the columns of a table, and the names of the columns that it does not use.

    Parameters
    ----------
    written : str
        Name of a file of Python with a function ``model``, whose arguments are columns, or a formula such as ``"y ~ x"``.
    frame : DataFrame
    likelihood : str
        Of a formula.

    Raises
    ------
    TableError, ModelError
        Saying what is missing and what to write.

    Examples
    --------
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 4.0], "x": [0.0, 1.0, 2.0], "z": [1.0, 1.0, 2.0]})
    >>> model, arguments, unused = model_and_data("y ~ x", frame)
    >>> unused
    ['z']
    """
    if "~" in written:
        try:
            model = formula(written, frame, likelihood=likelihood)
        except FormulaError as error:
            raise TableError(str(error)) from None
        if len(model.frame) != len(frame):
            raise TableError(f"{len(frame) - len(model.frame)} rows have no outcome: leave them out of the table.")
        used = {*model.frame.columns}
        return model, (frame,), [name for name in frame.columns if name not in used]
    path = Path(written)
    if not path.is_file():
        raise TableError(f"There is no file {str(path)!r}. Write the name of a Python file, or a formula, 'y ~ x'.")
    program = runpy.run_path(str(path)).get("model")
    if not callable(program):
        raise ModelError(
            f"{str(path)!r} defines no function 'model'. Write def model(x, y): with columns as arguments."
        )
    names = argument_names(program, len(parameters_of(program)))
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise TableError(
            f"The model takes {missing[0]!r}, which is no column of the table ({', '.join(map(str, frame.columns))}): its "
            f"arguments are columns by name."
        )
    return program, tuple(_values(frame[name]) for name in names), [name for name in frame.columns if name not in names]


def _values(column: "pd.Series[Any]") -> Any:
    """Return a column as the model gets it: text as codes of the levels in order."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy()
    return pd.Categorical(column).codes.astype(int)
