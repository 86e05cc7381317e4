"""Arguments and options that commands on a model and a table share."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["CsvFile", "Decimal", "FormulaLikelihood", "Separator", "WrittenModel"]

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
