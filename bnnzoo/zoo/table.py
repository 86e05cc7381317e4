"""The table of the zoo: every small card by every method that applies to it, measured by the reference posterior."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import xarray as xr

from bnnzoo.core.executors import as_ready
from bnnzoo.engine.shares import Share, file_of, parts_in, refuse_missing
from bnnzoo.zoo.budgets import table_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.cells import Cell, blank_cell, measure, read_cells, rounded, write_cells
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.measured import measured
from bnnzoo.zoo.reference import referenced

__all__ = ["WHOLE", "enter", "fill_table", "merge_table", "own_and_others", "table_rows"]

WHOLE = "zoo_table.json"
"""Name of the table that is put together of what tasks have written."""


QUICK = 60.0
"""Processor seconds of a fit that is run with every seed; slower ones are run with the first."""


type Place = tuple[str, str, int]
"""Card, method and seed of a cell."""


def fill_table(
    path: Path,
    cards: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    seeds: int = 1,
    workers: int = 1,
    executor: Executor | None = None,
    task: tuple[int, int] | None = None,
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
        JSON file; is created if need be. With ``task``, the folder into which each task writes a file of its own.
    cards : sequence of str, optional
        Default: all cards with a reference posterior whose data are there.
    methods : sequence of str, optional
        Default: all of :func:`bnnzoo.zoo.budgets.table_methods`.
    seeds : int
        Fits of each cell; one that takes a minute of processor time or more is run once.
    workers : int
        Processes; where there are several, each computes on one core.
    executor : concurrent.futures.Executor, optional
        In place of these processes, such as ``client.get_executor()`` of a Dask cluster.
    task : tuple of int, optional
        Number of this call, from 0, and how many calls share the cells; see :func:`merge_table`.
    limit, small, folder
        As for :func:`measure`.
    announce : callable
        Receives each new cell.

    Returns
    -------
    list of Cell
        All cells of the file, or of this task.

    Raises
    ------
    ZooError
        If a card is unknown, has no reference posterior or lacks its data; if there is no such method; or if the file is
        no table.
    ShareError
        If there is no such task, or it would have nothing to do.
    """
    share, plan = Share.given(task), _Plan(cards, methods, seeds, limit, small, folder)
    mine = [plan.pairs[number] for number in share.numbers(len(plan.pairs), "cells")]
    file = file_of(path, task, "json")
    own = {_place(cell): cell for cell in read_cells(file)}
    known = own if task is None else plan.measured_in(path)
    options = {"small": small, "folder": folder, "limit": limit}
    for seed in range(seeds):
        todo = [(card, method, seed) for card, method in mine if not plan.is_done((card, method, seed), known)]
        for cell in _measured_by(executor, workers, todo, options):
            known[_place(cell)] = own[_place(cell)] = cell
            write_cells(own.values(), file, small)
            announce(cell)
    return [*own.values()]


def merge_table(
    path: Path,
    num_tasks: int,
    cards: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    seeds: int = 1,
    limit: float | None = None,
    small: bool = False,
    folder: Path | None = None,
) -> list[Cell]:
    """Put together what the tasks of a table have written: the file ``zoo_table.json`` is that of a single call.

    Parameters
    ----------
    path : Path
        The folder of their files.
    num_tasks : int
        How many there are.
    cards, methods, seeds, limit, small, folder
        As for :func:`fill_table`.

    Returns
    -------
    list of Cell
        All cells of the table.

    Raises
    ------
    UnfinishedError
        If cells are missing; the message names them and the tasks to run again.
    """
    plan = _Plan(cards, methods, seeds, limit, small, folder)
    known, missing = plan.measured_in(path), {}
    for number, (card, method) in enumerate(plan.pairs):
        if lacks := [str(seed) for seed in range(seeds) if not plan.is_done((card, method, seed), known)]:
            missing[number] = f"{card} by {method}, seed {', '.join(lacks)}"
    refuse_missing(missing, len(plan.pairs), num_tasks, "cells")
    write_cells(known.values(), path / WHOLE, small)
    return read_cells(path / WHOLE)


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


def _place(cell: Cell) -> Place:
    return cell.card, cell.method, cell.seed


class _Plan:
    """The cells that a table is to have.

    Parameters
    ----------
    cards, methods, seeds, limit, small, folder
        As for :func:`fill_table`.

    Attributes
    ----------
    pairs : list of tuple of str
        Cards and methods, small cards first. A task has all seeds of a pair, since the first one says whether there are others.
    """

    def __init__(
        self,
        cards: Sequence[str] | None,
        methods: Sequence[str] | None,
        seeds: int,
        limit: float | None,
        small: bool,
        folder: Path | None,
    ) -> None:
        chosen, known = _cards(cards, folder), table_methods()
        if unknown := [name for name in methods or () if name not in known]:
            raise ZooError(f"The table has no method {unknown[0]!r}; its methods are {', '.join(known)}.")
        names = known if methods is None else methods
        blanks = [blank_cell(card, name, seed, small) for card in chosen for name in names for seed in range(seeds)]
        self._blanks, self._limit = {_place(blank): blank for blank in blanks}, limit
        self.pairs = list(dict.fromkeys((blank.card, blank.method) for blank in blanks))

    def measured_in(self, folder: Path) -> dict[Place, Cell]:
        """Return the cells of the plan that tasks have measured, in any division of the work."""
        cells = [cell for part in parts_in(folder, "json") for cell in read_cells(part)]
        return {place: cell for cell in cells if self._is_current(place := _place(cell), cell)}

    def is_done(self, place: Place, cells: Mapping[Place, Cell]) -> bool:
        """Tell whether a cell is there, or is not to be measured since that of the first seed is slow or has no result."""
        card, method, seed = place
        first = cells.get((card, method, 0))
        if seed and (first is None or first.refused or (first.processor or 0.0) >= QUICK):
            return True
        return place in cells and self._is_current(place, cells[place])

    def _is_current(self, place: Place, cell: Cell) -> bool:
        """Tell whether a cell is that of today's card and settings, and was not given up after a shorter time."""
        blank = self._blanks.get(place)
        if blank is None or (cell.version, cell.settings) != (blank.version, blank.settings):
            return False
        given_up = bool(cell.refused) and cell.processor is not None
        return not given_up or (self._limit is not None and self._limit <= (cell.processor or 0.0))


def _measured_by(
    executor: Executor | None, workers: int, todo: Sequence[Place], options: Mapping[str, object]
) -> Iterator[Cell]:
    run = partial(_measure_named, options=options)
    if executor is None and workers == 1:
        return map(run, todo)
    return as_ready(executor, run, todo, f"{len(todo)} cells", workers)


def _measure_named(place: Place, options: Mapping[str, object]) -> Cell:
    card, method, seed = place
    return measure(load(card), method, seed=seed, **options)  # type: ignore[arg-type]  # they are those of `measure`
