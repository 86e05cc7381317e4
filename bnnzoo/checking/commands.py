"""The command ``bnnzoo check``."""

import runpy
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from rich.console import Console

from bnnzoo.checking.check import check
from bnnzoo.core.arguments import argument_names, parameters_of
from bnnzoo.core.sites import ModelError
from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.models.formula import FormulaError, formula
from bnnzoo.reporting.folders import refuse_unusable_folder
from bnnzoo.tables import TableError, read_table

__all__ = ["check_command"]


def check_command(
    console: Console, one_sentence_errors: Callable[[], AbstractContextManager[None]]
) -> Callable[..., None]:
    """Return the command.

    Parameters
    ----------
    console : Console
        To which it prints.
    one_sentence_errors : callable
        Returns a context in which an error of the user becomes one sentence.
    """

    def command(
        model: Annotated[
            str,
            typer.Argument(
                help="Python file with a function model, whose arguments are columns, or a formula such as 'y ~ x + (1 | g)'.",
                show_default=False,
            ),
        ],
        data: Annotated[Path, typer.Argument(help="CSV file with a header line.", show_default=False)],
        out: Annotated[Path, typer.Option(help="New folder for check.html and check.json.")] = Path("check"),
        likelihood: Annotated[str, typer.Option(help="Likelihood of a formula.")] = "gaussian",
        num_simulations: Annotated[int, typer.Option(min=0, help="Data sets for calibration by simulation.")] = 0,
        num_warmup: Annotated[int, typer.Option(min=1, help="Warm-up iterations of each chain.")] = 1000,
        num_draws: Annotated[int, typer.Option(min=4, help="Draws of each chain after warm-up.")] = 1000,
        separator: Annotated[str, typer.Option(help="Separator between fields.")] = ",",
        decimal: Annotated[str, typer.Option(help="Decimal mark of numbers: '.' or ','.")] = ".",
        seed: Annotated[int, typer.Option(help="Seed of the fit and of the check.")] = 0,
    ) -> None:
        """Check a model against a table: what it misses, whether its prior agrees, and what to do.

        Columns that the model does not use are tried as what it may lack.
        """
        with one_sentence_errors():
            refuse_unusable_folder(out)
            frame = read_table(data, separator, decimal)
            torch.set_default_dtype(torch.float64)
            written, arguments, unused = (
                _formula(model, frame, likelihood) if "~" in model else _program(Path(model), frame)
            )
            found = check(
                written,
                *arguments,
                method=NUTS(num_warmup=num_warmup, num_draws=num_draws),
                beside=frame[unused] if unused else None,
                num_simulations=num_simulations,
                seed=seed,
            )
            found.save(out)
            console.print(str(found), highlight=False, markup=False, soft_wrap=True)
            console.print(f"\nWritten to {out}: check.html, check.json", highlight=False, soft_wrap=True)

    return command


def _formula(text: str, frame: pd.DataFrame, likelihood: str) -> tuple[Model, tuple[Any, ...], list[str]]:
    try:
        model = formula(text, frame, likelihood=likelihood)
    except FormulaError as error:
        raise TableError(str(error)) from None
    if len(model.frame) != len(frame):
        raise TableError(f"{len(frame) - len(model.frame)} rows have no outcome: leave them out of the table.")
    used = {*model.frame.columns}
    return model, (frame,), [name for name in frame.columns if name not in used]


def _program(path: Path, frame: pd.DataFrame) -> tuple[Model, tuple[Any, ...], list[str]]:
    if not path.is_file():
        raise TableError(f"There is no file {str(path)!r}. Write the name of a Python file, or a formula, 'y ~ x'.")
    model = runpy.run_path(str(path)).get("model")
    if not callable(model):
        raise ModelError(
            f"{str(path)!r} defines no function 'model'. Write def model(x, y): with columns as arguments."
        )
    names = argument_names(model, len(parameters_of(model)))
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise TableError(
            f"The model takes {missing[0]!r}, which is no column of the table ({', '.join(map(str, frame.columns))}): its "
            f"arguments are columns by name."
        )
    return model, tuple(_values(frame[name]) for name in names), [name for name in frame.columns if name not in names]


def _values(column: "pd.Series[Any]") -> Any:
    """Return a column as the model gets it: text as codes of the levels in order."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy()
    return pd.Categorical(column).codes.astype(int)
