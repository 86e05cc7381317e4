"""The commands ``bnnzoo zoo``, and ``show``, ``run``, ``table``, ``score`` and ``export`` after it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
import xarray as xr
from rich.console import Console
from rich.table import Table as Grid

from bnnzoo.calibration import nll
from bnnzoo.diagnostics import function_space
from bnnzoo.engine.files import refuse_missing_folder
from bnnzoo.engine.shares import UnfinishedError, out_asked, share_asked
from bnnzoo.predictive.save_tree import save_tree
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import list as list_cards
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.cells import Cell, read_cells
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.export import export as write_set
from bnnzoo.zoo.foreign import read_predictions
from bnnzoo.zoo.reference import referenced
from bnnzoo.zoo.score import score as score_of
from bnnzoo.zoo.table import WHOLE, enter, fill_table, merge_table, table_rows

__all__ = ["distance_text", "distances", "verdict", "zoo_commands"]

MAX_RHAT, MIN_ESS = 1.01, 400.0

Name = Annotated[str, typer.Argument(help="Name of a card, as in the list.", show_default=False)]
Data = Annotated[Path | None, typer.Option(help="Folder of data, for cards that need it (default: BNNZOO_DATA).")]


def zoo_commands(console: Console, one_sentence_errors: Callable[[], AbstractContextManager[None]]) -> typer.Typer:
    """Return the commands of the zoo.

    Parameters
    ----------
    console : Console
        To which they print.
    one_sentence_errors : callable
        Returns a context in which an error of the user becomes one sentence.
    """
    app = typer.Typer(help="Models with their data, priors and methods: list, show and fit them.")

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    @app.callback(invoke_without_command=True)
    def zoo(context: typer.Context) -> None:
        """List the cards of the zoo."""
        if context.invoked_subcommand is None:
            say(repr(list_cards()))

    @app.command()
    def show(name: Name) -> None:
        """Describe a card: model, data, prior, methods and where it comes from."""
        with one_sentence_errors():
            say(repr(load(name)))

    @app.command()
    def run(
        name: Name,
        method: Annotated[str | None, typer.Option(help="One of the card's methods (default: its first).")] = None,
        out: Annotated[Path | None, typer.Option(help="New netCDF file for the tree.")] = None,
        seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
        smoke: Annotated[bool, typer.Option("--smoke", help="A budget of about a second, converged or not.")] = False,
        data: Data = None,
    ) -> None:
        """Fit a card with one of its methods, print a verdict, and write the tree of its predictions."""
        with one_sentence_errors():
            card = load(name)
            chosen = next(iter(card.methods)) if method is None else method
            card.method(chosen)
            if out is not None:
                _refuse_unusable_file(out)
            posterior = card.fit(chosen, seed=seed, smoke=smoke, folder=data)
            tree = card.predict(posterior, folder=data)
            for line in verdict(card, tree, folder=data):
                say(line)
            if out is not None:
                _refuse_unusable_file(out)
                save_tree(tree, out)
                say(f"Written to {out}")

    @app.command()
    def table(
        out: Annotated[
            Path | None,
            typer.Option(help=f"JSON file to begin or to go on with, or the folder of the tasks (default: {WHOLE})."),
        ] = None,
        cards: Annotated[str | None, typer.Option(help="Comma-separated (default: all with a reference).")] = None,
        methods: Annotated[str | None, typer.Option(help="Comma-separated (default: all that apply).")] = None,
        seeds: Annotated[
            int, typer.Option(min=1, help="Fits of a cell that takes less than a minute of processor time.")
        ] = 1,
        workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
        task: Annotated[
            int | None, typer.Option(min=0, help="Number of this task, from 0, such as $SLURM_ARRAY_TASK_ID.")
        ] = None,
        of: Annotated[int | None, typer.Option(min=1, help="Number of tasks that share the cells.")] = None,
        limit: Annotated[
            float | None, typer.Option(min=1, help="Processor seconds after which a fit is given up.")
        ] = None,
        smoke: Annotated[bool, typer.Option("--smoke", help="Budgets of about a second, converged or not.")] = False,
        data: Data = None,
    ) -> None:
        """Measure every method on every card with a reference posterior; what the file holds is not run again."""
        with one_sentence_errors():
            asked = share_asked(task, of)
            out = out_asked(out, asked, WHOLE)
            plan: Mapping[str, Any] = {
                "cards": _listed(cards),
                "methods": _listed(methods),
                "seeds": seeds,
                "limit": limit,
                "small": smoke,
                "folder": data,
            }
            cells = fill_table(out, **plan, workers=workers, task=asked, announce=lambda cell: say(_line(cell)))
            if asked is not None:
                try:
                    cells = merge_table(out, asked[1], **plan)
                except UnfinishedError as error:
                    say(f"Task {task} of {of} is done. {error}")
                    return
                out = out / WHOLE
            grid = Grid(*(header := table_rows(cells, distance_text))[0], title="distance, in Monte Carlo floors")
            for row in header[1:]:
                grid.add_row(*row)
            console.print(grid)
            say(f"Written to {out}")

    @app.command()
    def score(
        file: Annotated[Path, typer.Argument(help="Predictions, as a netCDF tree or as CSV.", show_default=False)],
        card: Annotated[str, typer.Option(help="Name of the card.", show_default=False)],
        method: Annotated[str | None, typer.Option(help="Name under which --table gets the result.")] = None,
        table: Annotated[Path | None, typer.Option(help="JSON file to enter the result into, as of zoo table.")] = None,
        data: Data = None,
    ) -> None:
        """Measure predictions of any program by a card's reference posterior."""
        with one_sentence_errors():
            if (method is None) != (table is None):
                raise ZooError("--method and --table belong together: the name of the method, and the table it enters.")
            tree = read_predictions(file, card)
            for line in distances(tree, card):
                say(line)
            if table is not None and method is not None:
                refuse_missing_folder(table)
                enter(table, tree, load(card), method, data)
                say(f"Entered into {table}")

    @app.command()
    def export(
        folder: Annotated[Path, typer.Argument(help="New folder.", show_default=False)],
        table: Annotated[Path | None, typer.Option(help="JSON file of zoo table, for the leaderboard.")] = None,
        cards: Annotated[str | None, typer.Option(help="Comma-separated (default: all with a reference).")] = None,
        all_draws: Annotated[
            Path | None, typer.Option(help="Folder that make_reference --all-draws wrote, whose references are taken.")
        ] = None,
    ) -> None:
        """Write the reference set as JSON, CSV and netCDF, with schemas, loaders and checksums."""
        with one_sentence_errors():
            if table is not None and not table.is_file():
                raise FileNotFoundError(f"There is no file {str(table)!r}: make it by bnnzoo zoo table --out {table}.")
            refuse_missing_folder(folder)
            cells = read_cells(table) if table is not None else ()
            write_set(folder, cells, cards=_listed(cards), all_draws=all_draws, announce=say)
            say(f"Written to {folder}")

    return app


def distances(tree: xr.DataTree, name: str) -> list[str]:
    """Return a line for each measure: how far predictions are from a card's reference, and how far equal posteriors are.

    Parameters
    ----------
    tree : DataTree
    name : str
        Of the card.
    """
    found = score_of(tree, name)
    lines = []
    for measure in found["measure"].values:
        distance, floor, limit = (float(found[each].sel(measure=measure)) for each in ("distance", "floor", "limit"))
        told = "no evidence of a difference" if distance <= limit else "another posterior"
        lines.append(f"{measure}: {distance:.3g} (equal posteriors: {floor:.2g}, and below {limit:.2g}): {told}")
    return lines


def distance_text(seeds: Sequence[Cell]) -> str:
    """Return the distance from the reference, the median over seeds, in words as short as a table needs them."""
    found = [cell.distance for cell in seeds if cell.distance is not None]
    return f"{median(found):.3g}" if found else "-"


def verdict(card: Card, tree: xr.DataTree, folder: Path | None = None) -> list[str]:
    """Return what a person wants to know of a fit first: whether it converged, how well it predicts, and how far off it is.

    Parameters
    ----------
    card : Card
    tree : DataTree
        Of ``card.predict``.
    folder : Path, optional
        As for ``card.data``.
    """
    seconds, compiling = (f"{tree.attrs[name]:.1f} s" for name in ("seconds", "seconds_compiling"))
    lines = [f"{card.name}, {tree.attrs['inference_method']}: {seconds}, {compiling} of them compiling"]
    if tree.attrs["sampling"] == "mcmc":
        found = function_space(tree)
        rhat, ess = float(found["rhat"].max()), float(found["ess_bulk"].min())
        said = f"The predictions have {'' if rhat < MAX_RHAT and ess > MIN_ESS else 'not '}converged"
        lines.append(f"{said}: largest R-hat {rhat:.3f}, smallest effective sample size {ess:.0f}")
    if "predictions_log_likelihood" in tree.children:
        rows = nll(tree)
        lines.append(
            f"Mean log predictive density of {rows.sizes['obs_id']} new observations: {-float(rows.mean()):.3f}"
        )
    if card.name in referenced():
        found = score_of(tree, card.name)
        each = [(str(name), found.sel(measure=name)) for name in found["measure"].values]
        parts = [f"{name} {float(one['distance']):.3g} (floor {float(one['floor']):.2g})" for name, one in each]
        lines.append(f"Distance from the reference posterior: {', '.join(parts)}")
    return lines


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _line(cell: Cell) -> str:
    if cell.refused:
        return f"{cell.card}, {cell.method}: no result. {cell.refused}"
    return f"{cell.card}, {cell.method}: {distance_text([cell])} floors, {cell.seconds:.1f} s"


def _refuse_unusable_file(path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"{str(path)!r} already exists; choose another --out, or remove it.")
    refuse_missing_folder(path)
