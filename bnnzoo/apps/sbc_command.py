"""The command ``bnnzoo sbc``."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
import xarray as xr
from rich.console import Console

from bnnzoo.apps.tables import TableError, read_table
from bnnzoo.apps.tables.options import (
    CsvFile,
    Decimal,
    FormulaLikelihood,
    NumTasks,
    Separator,
    TaskNumber,
    WrittenModel,
)
from bnnzoo.apps.tables.written_models import model_and_data
from bnnzoo.core.method import Method
from bnnzoo.documents.folders import refuse_unusable_folder
from bnnzoo.engine.files import whole_file
from bnnzoo.engine.shares import UnfinishedError, file_of, parts_in, share_asked
from bnnzoo.predictive import save_tree
from bnnzoo.validation.sbc import sbc
from bnnzoo.validation.sbc_ranks import sbc_verdict
from bnnzoo.validation.shared_calibrations import sbc_merged

__all__ = ["sbc_command"]

RANKS_SO_FAR = "ranks.sbc"


def sbc_command(
    console: Console,
    one_sentence_errors: Callable[[], AbstractContextManager[None]],
    methods_from: Callable[..., dict[str, Method]],
) -> Callable[..., None]:
    """Return the command.

    Parameters
    ----------
    console : Console
        To which it prints.
    one_sentence_errors : callable
        Returns a context in which an error of the user becomes one sentence.
    methods_from : callable
        Returns methods by name from a comma-separated list.
    """

    def command(
        model: WrittenModel,
        data: CsvFile,
        out: Annotated[
            Path,
            typer.Option(
                help="Folder for ranks.nc and verdict.csv: a new one, or that of the call or tasks to go on with."
            ),
        ] = Path("sbc"),
        method: Annotated[str, typer.Option(help="The inference method.")] = "nuts",
        num_simulations: Annotated[int, typer.Option(min=2, help="Data sets, over all tasks.")] = 200,
        task: TaskNumber = None,
        of: NumTasks = None,
        likelihood: FormulaLikelihood = "gaussian",
        separator: Separator = ",",
        decimal: Decimal = ".",
        seed: Annotated[int, typer.Option(help="Seed of simulations and fits.")] = 0,
    ) -> None:
        """Ask whether a method's posteriors of a model are right, over data sets that the model makes.

        A call that was killed goes on where it stopped. Tasks run anywhere, write a file each, and go on as well; the last one of
        them writes the verdict.
        """
        with one_sentence_errors():
            asked = share_asked(task, of)
            # a folder of a call that was killed, or has ended, or got no further than to make it, is used again
            if asked is None and not (
                (out / RANKS_SO_FAR).is_file()
                or (out.is_dir() and all(each.name.startswith(f".{RANKS_SO_FAR}") for each in out.iterdir()))
            ):
                refuse_unusable_folder(out)
            frame = read_table(data, separator, decimal)
            torch.set_default_dtype(torch.float64)
            written, arguments, _ = model_and_data(model, frame, likelihood)
            chosen = methods_from(method)
            if len(chosen) > 1:
                raise TableError(
                    f"--method {method!r} names {len(chosen)} methods: calibrate one at a time, each in a folder."
                )
            settings: dict[str, Any] = {"num_simulations": num_simulations, "seed": seed}
            (how,) = chosen.values()
            if asked is None:
                out.mkdir(exist_ok=True)
                try:
                    tree = sbc(written, how, *arguments, **settings, path=out / RANKS_SO_FAR)
                except BaseException:
                    with suppress(OSError):
                        out.rmdir()  # if nothing has been written
                    raise
            else:
                path = file_of(out, asked, "sbc")
                sbc(written, how, *arguments, **settings, task=asked, path=path)
                try:
                    tree = sbc_merged(parts_in(out, "sbc", of))
                except UnfinishedError as error:
                    console.print(f"Written: {path}. {error}", highlight=False, markup=False, soft_wrap=True)
                    return
            _write(tree, out, console)

    return command


def _write(tree: xr.DataTree, out: Path, console: Console) -> None:
    verdict = sbc_verdict(tree)
    save_tree(tree, out / "ranks.nc")
    with whole_file(out / "verdict.csv") as partial:
        verdict.to_csv(partial, index_label="quantity")
    for sentence in verdict["sentence"]:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    console.print(f"\nWritten to {out}: ranks.nc, verdict.csv", highlight=False, soft_wrap=True)
