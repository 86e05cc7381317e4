"""The command ``bnnzoo check``."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from bnnzoo.apps.tables import read_table
from bnnzoo.apps.tables.options import CsvFile, Decimal, FormulaLikelihood, Separator, WrittenModel
from bnnzoo.apps.tables.written_models import model_and_data
from bnnzoo.checking.check import check
from bnnzoo.documents.folders import refuse_unusable_folder
from bnnzoo.inference import NUTS

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
        model: WrittenModel,
        data: CsvFile,
        out: Annotated[Path, typer.Option(help="New folder for check.html and check.json.")] = Path("check"),
        likelihood: FormulaLikelihood = "gaussian",
        num_simulations: Annotated[int, typer.Option(min=0, help="Data sets for calibration by simulation.")] = 0,
        num_warmup: Annotated[int, typer.Option(min=1, help="Warm-up iterations of each chain.")] = 1000,
        num_draws: Annotated[int, typer.Option(min=4, help="Draws of each chain after warm-up.")] = 1000,
        separator: Separator = ",",
        decimal: Decimal = ".",
        seed: Annotated[int, typer.Option(help="Seed of the fit and of the check.")] = 0,
    ) -> None:
        """Check a model against a table: what it misses, whether its prior agrees, and what to do.

        Columns that the model does not use are tried as what it may lack.
        """
        with one_sentence_errors():
            refuse_unusable_folder(out)
            frame = read_table(data, separator, decimal)
            torch.set_default_dtype(torch.float64)
            written, arguments, unused = model_and_data(model, frame, likelihood)
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
