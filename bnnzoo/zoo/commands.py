"""The commands ``bnnzoo zoo``, ``bnnzoo zoo show``, ``bnnzoo zoo run`` and ``bnnzoo zoo table``."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
import xarray as xr
from rich.console import Console
from rich.table import Table as Grid

from bnnzoo.calibration import nll
from bnnzoo.diagnostics import function_space
from bnnzoo.predictive.save_tree import save_tree
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import list as list_cards
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.reference import referenced
from bnnzoo.zoo.score import score
from bnnzoo.zoo.table import Cell, fill_table, table_rows

__all__ = ["distance_text", "verdict", "zoo_commands"]

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
        out: Annotated[Path, typer.Option(help="JSON file to begin or to go on with.")] = Path("zoo_table.json"),
        cards: Annotated[str | None, typer.Option(help="Comma-separated (default: all with a reference).")] = None,
        methods: Annotated[str | None, typer.Option(help="Comma-separated (default: all that apply).")] = None,
        seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
        smoke: Annotated[bool, typer.Option("--smoke", help="Budgets of about a second, converged or not.")] = False,
        data: Data = None,
    ) -> None:
        """Measure every method on every card with a reference posterior; what the file holds is not run again."""
        with one_sentence_errors():
            _refuse_missing_folder(out)
            chosen = _listed(cards), _listed(methods)
            cells = fill_table(
                out, *chosen, seed=seed, small=smoke, folder=data, announce=lambda cell: say(_line(cell))
            )
            grid = Grid(*(header := table_rows(cells, distance_text))[0], title="distance, in Monte Carlo floors")
            for row in header[1:]:
                grid.add_row(*row)
            console.print(grid)
            say(f"Written to {out}")

    return app


def distance_text(cell: Cell) -> str:
    """Return a cell's distance from the reference in words as short as a table needs them."""
    return "-" if cell.distance is None else f"{cell.distance:.3g}"


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
        lines.append(_convergence(tree))
    if "predictions_log_likelihood" in tree.children:
        lines.append(_density(tree))
    if card.name in referenced():
        found = score(tree, card.name)
        said = [
            f"{name} {float(each['distance']):.3g} (floor {float(each['floor']):.2g})"
            for name, each in _measures(found)
        ]
        lines.append(f"Distance from the reference posterior: {', '.join(said)}")
    return lines


def _measures(found: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    return [(str(name), found.sel(measure=name)) for name in found["measure"].values]


def _convergence(tree: xr.DataTree) -> str:
    found = function_space(tree)
    rhat, ess = float(found["rhat"].max()), float(found["ess_bulk"].min())
    converged = rhat < MAX_RHAT and ess > MIN_ESS
    said = "The predictions have converged" if converged else "The predictions have not converged"
    return f"{said}: largest R-hat {rhat:.3f}, smallest effective sample size {ess:.0f}"


def _density(tree: xr.DataTree) -> str:
    rows = nll(tree)
    return f"Mean log predictive density of {rows.sizes['obs_id']} new observations: {-float(rows.mean()):.3f}"


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _line(cell: Cell) -> str:
    if cell.refused:
        return f"{cell.card}, {cell.method}: no result. {cell.refused}"
    return f"{cell.card}, {cell.method}: {distance_text(cell)} floors, {cell.seconds:.1f} s"


def _refuse_unusable_file(path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"{str(path)!r} already exists; choose another --out, or remove it.")
    _refuse_missing_folder(path)


def _refuse_missing_folder(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {str(path.absolute().parent)!r} for {path.name!r}; create it first."
        )
