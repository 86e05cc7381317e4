"""The table of the zoo: every small card by every method that applies to it, measured by the reference posterior."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import xarray as xr

from bnnzoo.zoo.budgets import table_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.cells import Cell, blank_cell, measure, read_cells, rounded, write_cells
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.measured import measured
from bnnzoo.zoo.reference import referenced

__all__ = ["enter", "fill_table", "own_and_others", "table_rows"]

QUICK = 60.0
"""Processor seconds of a fit that is run with every seed; slower ones are run with the first."""


def fill_table(
    path: Path,
    cards: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    seeds: int = 1,
    workers: int = 1,
    limit: float | None = None,
    small: bool = False,
    folder: Path | None = None,
    announce: Callable[[Cell], None] = lambda cell: None,
) -> list[Cell]:
    """Measure the cells that a file does not have yet, and write it after each of them.

    A cell is measured again if its card's version or its settings have changed, or if it was given up after a shorter time.

    Parameters
    ----------
    path : Path
        JSON file; is created if need be.
    cards : sequence of str, optional
        Default: all cards with a reference posterior whose data are there.
    methods : sequence of str, optional
        Default: all of :func:`bnnzoo.zoo.budgets.table_methods`.
    seeds : int
        Fits of each cell; one that takes a minute of processor time or more is run once.
    workers : int
        Processes.
    limit, small, folder
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
        If a card is unknown, has no reference posterior or lacks its data; if there is no such method; or if the file is
        no table.
    """
    chosen, known = _cards(cards, folder), table_methods()
    if unknown := [name for name in methods or () if name not in known]:
        raise ZooError(f"The table has no method {unknown[0]!r}; its methods are {', '.join(known)}.")
    cells = {_place(cell): cell for cell in read_cells(path)}
    options = {"small": small, "folder": folder, "limit": limit}
    for seed in range(seeds):
        blanks = [
            blank_cell(card, name, seed, small) for card in chosen for name in (known if methods is None else methods)
        ]
        todo = [(blank.card, blank.method, seed) for blank in blanks if not _is_done(blank, cells, limit)]
        for cell in _measured_by(workers, todo, options):
            cells[_place(cell)] = cell
            write_cells(cells.values(), path, small)
            announce(cell)
    return [*cells.values()]


def enter(path: Path, tree: xr.DataTree, card: Card, method: str, folder: Path | None = None) -> Cell:
    """Measure predictions of any program, and enter them into a table in place of what its method had there.

    Parameters
    ----------
    path : Path
        JSON file of a table; is created if need be.
    tree : DataTree
        Predictions for the card's test rows. Its attributes ``sampling``, ``seed``, ``seconds`` and ``num_gradients`` are taken
        over, if there are any; without the first, several draws of a chain are those of a Markov chain.
    card : Card
        With a reference posterior.
    method : str
        Its name in the table.
    folder : Path, optional
        As for ``card.data``.

    Raises
    ------
    ZooError
        If the name is that of a method which the table itself runs, or the file is no table.
    """
    if method in table_methods():
        raise ZooError(f"{method!r} is a method that the table itself runs: give yours another name.")
    about = tree.attrs
    cell = Cell(
        card=card.name,
        method=method,
        version=card.version,
        seed=int(about.get("seed", 0)),
        gradients=int(about["num_gradients"]) if "num_gradients" in about else None,
        seconds=float(about["seconds"]) if "seconds" in about else None,
        warnings=tuple(json.loads(about["warnings"])) if "warnings" in about else (),
        **rounded(measured(tree, card, card.data(folder))),
    )
    cells = {_place(each): each for each in read_cells(path)} | {_place(cell): cell}
    write_cells(cells.values(), path)
    return cell


def own_and_others(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of the methods that the table runs, and those of other programs.

    Parameters
    ----------
    cells : sequence of Cell

    Examples
    --------
    >>> cells = [Cell(card="cubic", method=name, version=1, seed=0) for name in ("nuts", "theirs")]
    >>> [[cell.method for cell in part] for part in own_and_others(cells)]
    [['nuts'], ['theirs']]
    """
    known = table_methods()
    return [cell for cell in cells if cell.method in known], [cell for cell in cells if cell.method not in known]


def table_rows(cells: Sequence[Cell], text: Callable[[Sequence[Cell]], str]) -> list[list[str]]:
    """Return a header and a row for each card, with a column for each method; cells that were not run are empty.

    Parameters
    ----------
    cells : sequence of Cell
    text : callable
        Of the cells of one card and method, which differ in their seeds.

    Examples
    --------
    >>> cell = Cell(card="cubic", method="nuts", version=1, seed=0, distance=1.04)
    >>> table_rows([cell], lambda seeds: f"{seeds[0].distance:.1f}")
    [['card', 'nuts'], ['cubic', '1.0']]
    """
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.card, cell.method), []).append(cell)
    cards = list(dict.fromkeys(card for card, _ in found))
    order = [*table_methods()]
    methods = sorted(
        {method for _, method in found}, key=lambda name: (order.index(name) if name in order else 99, name)
    )
    written = {key: text(seeds) for key, seeds in found.items()}
    return [["card", *methods], *([card, *(written.get((card, each), "") for each in methods)] for card in cards)]


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


def _place(cell: Cell) -> tuple[str, str, int]:
    return cell.card, cell.method, cell.seed


def _is_done(blank: Cell, cells: Mapping[tuple[str, str, int], Cell], limit: float | None) -> bool:
    """Tell whether a cell is there, or is not to be measured since that of the first seed is slow or has no result."""
    first, found = cells.get((blank.card, blank.method, 0)), cells.get(_place(blank))
    if blank.seed and (first is None or first.refused or (first.processor or 0.0) >= QUICK):
        return True
    if found is None or (found.version, found.settings) != (blank.version, blank.settings):
        return False
    given_up = bool(found.refused) and found.processor is not None
    return not given_up or (limit is not None and limit <= (found.processor or 0.0))


def _measured_by(workers: int, todo: Sequence[tuple[str, str, int]], options: Mapping[str, object]) -> Iterator[Cell]:
    if workers == 1:
        yield from (_measure_named(*each, options) for each in todo)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(_measure_named, *each, options) for each in todo]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _measure_named(card: str, method: str, seed: int, options: Mapping[str, object]) -> Cell:
    return measure(load(card), method, seed=seed, **options)  # type: ignore[arg-type]  # they are those of `measure`
