"""The table of the zoo: every small card by every method that applies to it, measured by the reference posterior."""

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bnnzoo.calibration import ece, miscalibration_area, nll
from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.core.method import Method
from bnnzoo.engine.files import whole_file
from bnnzoo.inference.config import config_of
from bnnzoo.trees import num_draws
from bnnzoo.zoo.budgets import further_methods, smoke
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.reference import referenced
from bnnzoo.zoo.score import score

__all__ = ["Cell", "enter", "fill_table", "measure", "methods_of", "read_cells", "table_rows", "write_cells"]

NUM_DRAWS = 1024
"""Draws of a posterior that can have any number of them, as many as a reference keeps."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one method of one card came to.

    Parameters
    ----------
    card, method : str
    version, seed : int
        Of the card and of the fit.
    settings : str
        Of the method, as JSON.
    distance : float, optional
        Wasserstein distance to the reference posterior, as a multiple of its Monte Carlo floor. None if refused,
        and for point estimates, which have a single draw.
    log_density : float, optional
        Mean log predictive density of new observations, in the card's units. None if the card has none.
    calibration : float, optional
        Expected calibration error of classes, miscalibration area of other outcomes; dimensionless. None for
        point estimates of the latter.
    seconds : float, optional
        Wall time of the fit.
    warnings : tuple of str
        Categories of the fit's warnings.
    refused : str
        Why the method does not apply to the model, or that it failed. Empty: neither.
    """

    card: str
    method: str
    version: int
    seed: int
    settings: str
    distance: float | None = None
    log_density: float | None = None
    calibration: float | None = None
    seconds: float | None = None
    warnings: tuple[str, ...] = ()
    refused: str = ""

    def same_run(self, other: "Cell") -> bool:
        """Tell whether another cell has the same card, method, settings and seed."""
        return _run(self) == _run(other)


def methods_of(card: Card) -> dict[str, Method]:
    """Return the methods of a card and, with default settings, those of :func:`further_methods` that it does not have.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> "multi-swag" in methods_of(bz.zoo.load("two-moons"))
    True
    """
    return {**further_methods(), **card.methods}


def measure(
    card: Card, name: str, *, seed: int = 0, small: bool = False, folder: Path | None = None, progress: bool = False
) -> Cell:
    """Fit a card by one method and measure the result.

    Parameters
    ----------
    card : Card
        With a reference posterior.
    name : str
        Of the method, see :func:`methods_of`.
    seed : int
    small : bool
        Take a smoke budget.
    folder, progress
        As for ``card.fit``.

    Returns
    -------
    Cell
        Refused if the method does not apply to the model or its fit fails.
    """
    blank = _blank(card, name, seed, small)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            posterior = card.fit(_method(card, name, small), seed=seed, folder=folder, progress=progress)
        except (ValueError, RuntimeError, ArithmeticError) as error:
            if isinstance(error, ZooError):
                raise
            return Cell(**{**asdict(blank), "refused": str(error)})
        draws = NUM_DRAWS if posterior.info.sampling == "iid" else None
        tree = card.predict(posterior, folder=folder, num_draws=draws, weights=False)
    if not all(np.isfinite(values).all() for values in tree["conditional"].to_dataset().values()):
        return Cell(**{**asdict(blank), "refused": "The fit diverged: its predictions are not finite."})
    said = {each.category.__name__ for each in caught if issubclass(each.category, FitWarning)}
    return Cell(**{**asdict(blank), **_measured(tree, card.name), "warnings": tuple(sorted(said))})


def fill_table(
    path: Path,
    cards: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    seed: int = 0,
    small: bool = False,
    folder: Path | None = None,
    announce: Callable[[Cell], None] = lambda cell: None,
) -> list[Cell]:
    """Measure the cells that a file does not have yet, and write it after each of them.

    A cell is measured again if its card's version, its settings or the seed have changed.

    Parameters
    ----------
    path : Path
        JSON file; is created if need be.
    cards : sequence of str, optional
        Default: all cards with a reference posterior whose data are there.
    methods : sequence of str, optional
        Default: all of :func:`methods_of`.
    seed, small, folder
        As for :func:`measure`.
    announce : callable
        Receives each new cell.

    Returns
    -------
    list of Cell
        All cells of the file.

    Raises
    ------
    ZooError
        If a card is unknown, has no reference posterior or lacks its data; if no card has one of the methods; or if the
        file is no table.
    """
    chosen = _cards(cards, folder)
    known = {name for card in chosen for name in methods_of(card)}
    if unknown := [name for name in methods or () if name not in known]:
        raise ZooError(f"No card has a method {unknown[0]!r}; their methods are {', '.join(sorted(known))}.")
    cells = read_cells(path)
    for card in chosen:
        for name in methods_of(card) if methods is None else [each for each in methods if each in methods_of(card)]:
            blank = _blank(card, name, seed, small)
            if any(cell.same_run(blank) for cell in cells):
                continue
            cell = measure(card, name, seed=seed, small=small, folder=folder)
            cells = [each for each in cells if (each.card, each.method) != (card.name, name)] + [cell]
            write_cells(cells, path)
            announce(cell)
    return cells


def enter(path: Path, tree: xr.DataTree, card: Card, method: str) -> Cell:
    """Measure predictions of any program, and enter them into a table in place of what its method had there.

    Parameters
    ----------
    path : Path
        JSON file of a table; is created if need be.
    tree : DataTree
        Predictions for the card's test rows.
    card : Card
        With a reference posterior.
    method : str
        Its name in the table.

    Raises
    ------
    ZooError
        If the name is that of a method which the table itself runs, or the file is no table.
    """
    if method in methods_of(card):
        raise ZooError(f"{method!r} is a method that the table itself runs on {card.name!r}: give yours another name.")
    blank = Cell(card=card.name, method=method, version=card.version, seed=0, settings=json.dumps({"method": method}))
    cell = Cell(**{**asdict(blank), **_measured(tree, card.name)})
    others = [each for each in read_cells(path) if (each.card, each.method) != (card.name, method)]
    write_cells([*others, cell], path)
    return cell


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a file, none if there is no such file.

    Raises
    ------
    ZooError
        If the file is not a table of the zoo.
    """
    if not path.is_file():
        return []
    try:
        return [Cell(**{**each, "warnings": tuple(each["warnings"])}) for each in json.loads(path.read_text())["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ZooError(f"{path} is not a table of the zoo ({error}): choose another file, or remove it.") from error


def write_cells(cells: Iterable[Cell], path: Path) -> None:
    """Write cells to a file, whole or not at all."""
    text = json.dumps({"cells": [asdict(cell) for cell in cells]}, indent=1, allow_nan=False)
    with whole_file(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def table_rows(cells: Sequence[Cell], value: Callable[[Cell], str]) -> list[list[str]]:
    """Return a header and a row for each card, with a column for each method; cells that were not run are empty.

    Examples
    --------
    >>> cell = Cell(card="cubic", method="nuts", version=1, seed=0, settings="{}", distance=1.04)
    >>> table_rows([cell], lambda each: f"{each.distance:.1f}")
    [['card', 'nuts'], ['cubic', '1.0']]
    """
    found = {(cell.card, cell.method): value(cell) for cell in cells}
    cards, methods = (list(dict.fromkeys(key)) for key in zip(*found, strict=True)) if found else ([], [])
    return [["card", *methods], *([card, *(found.get((card, each), "") for each in methods)] for card in cards)]


def _cards(names: Sequence[str] | None, folder: Path | None) -> list[Card]:
    if names is None:
        return sorted((card for card in map(load, referenced()) if _has_data(card, folder)), key=_size)
    cards = [load(name) for name in names]
    if without := [card.name for card in cards if card.name not in referenced()]:
        raise ZooError(f"Card {without[0]!r} has no reference posterior; those with one are {', '.join(referenced())}.")
    for card in cards:
        card.data(folder)
    return cards


def _has_data(card: Card, folder: Path | None) -> bool:
    try:
        card.data(folder)
    except ZooError:
        return False
    return True


def _size(card: Card) -> int:
    """Return how many numbers the training data hold, for cards without data of the user first."""
    return sum(values.size for values in card.data().train.values()) if card.needs is None else 10**9


def _method(card: Card, name: str, small: bool) -> Method:
    method = methods_of(card)[name]
    return smoke(method) if small else method


def _blank(card: Card, name: str, seed: int, small: bool) -> Cell:
    settings = json.dumps({"method": type(methods_of(card)[name]).__name__, **config_of(_method(card, name, small))})
    return Cell(card=card.name, method=name, version=card.version, seed=seed, settings=settings)


def _run(cell: Cell) -> tuple[str | int, ...]:
    return cell.card, cell.method, cell.version, cell.seed, cell.settings


def _measured(tree: xr.DataTree, name: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {"seconds": float(tree.attrs["seconds"])} if "seconds" in tree.attrs else {}
    is_point, is_class = (
        num_draws(next(iter(tree["conditional"].data_vars.values()))) == 1,
        "probs" in tree["conditional"],
    )
    if not is_point:
        found["distance"] = float(score(tree, name)["ratio"].sel(measure="wasserstein"))
    if "predictions_log_likelihood" in tree.children:
        found["log_density"] = -float(nll(tree).mean())
        if is_class or not is_point:  # a single draw of a real outcome has no intervals
            found["calibration"] = float(ece(tree) if is_class else miscalibration_area(tree))
    return found
