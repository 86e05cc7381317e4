"""Arguments and options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["CsvFile", "Decimal", "FormulaLikelihood", "NumTasks", "Separator", "TaskNumber", "WrittenModel"]

WrittenModel = Annotated[
    str,
    typer.Argument(
        help="Python file with a function model, whose arguments are columns, or a formula such as 'y ~ x + (1 | g)'.",
        show_default=False,
    ),
]
CsvFile = Annotated[Path, typer.Argument(help="CSV file with a header line.", show_default=False)]
FormulaLikelihood = Annotated[str, typer.Option(help="Likelihood of a formula.")]
Separator = Annotated[str, typer.Option(help="Separator between fields.")]
Decimal = Annotated[str, typer.Option(help="Decimal mark of numbers: '.' or ','.")]
TaskNumber = Annotated[
    int | None, typer.Option(min=0, help="Number of this task, from 0, such as $SLURM_ARRAY_TASK_ID.")
]
NumTasks = Annotated[int | None, typer.Option(min=1, help="Number of tasks that share the work.")]
