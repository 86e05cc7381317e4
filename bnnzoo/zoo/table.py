"""The table of the zoo: every small card by every method that applies to it, measured by the reference posterior."""

import hashlib
import json
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.core.method import Method
from bnnzoo.engine.files import whole_file
from bnnzoo.inference.config import config_of
from bnnzoo.zoo.budgets import smoke, table_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.measured import measured
from bnnzoo.zoo.reference import referenced

__all__ = ["Cell", "enter", "fill_table", "measure", "read_cells", "table_rows", "write_cells"]

NUM_DRAWS = 1024
"""Draws of a posterior that can have any number of them, as many as a reference keeps."""

QUICK = 60.0
"""Processor seconds of a fit that is run with every seed; slower ones are run with the first."""

ABOUT_COSTS = {"TreeDepthWarning"}
"""Warnings that draws are slow, not that they are wrong."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one method came to on one card, with one seed.

    Parameters
    ----------
    card, method : str
    version, seed : int
        Of the card and of the fit.
    settings : str
        Digest of the method's settings, which the file lists. Empty for a method of the user's.
    distance : float, optional
        Wasserstein distance to the reference posterior, as a multiple of its Monte Carlo floor. None if refused,
        and for point estimates, which have a single draw, as for the next four.
    sd_inside, sd_beyond : float, optional
        Standard deviations of predictions over the reference's, on average over rows inside the data and beyond.
    off : bool, optional
        Whether a mean is more than 0.3 posterior standard deviations away or an sd wrong by a factor of more than 1.33,
        beyond three Monte Carlo errors, or chains have fewer than 100 effective draws of a prediction.
    log_density : float, optional
        Mean log predictive density of new observations, in the card's units. None if the card has none.
    calibration : float, optional
        Expected calibration error of classes, miscalibration area of other outcomes; dimensionless. None for
        point estimates of the latter.
    gradients : int, optional
        Gradients of the log density, summed over chains.
    seconds, compiling, processor : float, optional
        Wall time of the fit, what of it went into tracing and compiling, and processor time of fit and predictions, compilers
        included.
    warnings : tuple of str
        Categories of the fit's warnings.
    refused : str
        Why the method does not apply to the model, or that it failed. Empty: neither.
    """

    card: str
    method: str
    version: int
    seed: int
    settings: str = ""
    distance: float | None = None
    sd_inside: float | None = None
    sd_beyond: float | None = None
    off: bool | None = None
    log_density: float | None = None
    calibration: float | None = None
    gradients: int | None = None
    seconds: float | None = None
    compiling: float | None = None
    processor: float | None = None
    warnings: tuple[str, ...] = ()
    refused: str = ""

    @property
    def warned(self) -> bool:
        """Whether the fit said that its draws may be wrong."""
        return bool(set(self.warnings) - ABOUT_COSTS)


class _OutOfTimeError(BaseException):
    """Passes by what catches errors of the model."""


def measure(
    card: Card,
    name: str,
    *,
    seed: int = 0,
    small: bool = False,
    folder: Path | None = None,
    limit: float | None = None,
    progress: bool = False,
) -> Cell:
    """Fit a card by one method of the table and measure the result.

    Parameters
    ----------
    card : Card
        With a reference posterior.
    name : str
        Of the method, see :func:`bnnzoo.zoo.budgets.table_methods`.
    seed : int
    small : bool
        Take a smoke budget.
    folder, progress
        As for ``card.fit``.
    limit : float, optional
        Processor seconds after which the fit is given up, whatever else the machine does; not on Windows.

    Returns
    -------
    Cell
        Refused if the method does not apply to the model, its fit fails, or it is given up.
    """
    blank, begun = _blank(card, name, seed, small), _processor_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with _limited(limit):
                posterior = card.fit(_method(name, small), seed=seed, folder=folder, progress=progress)
                draws = NUM_DRAWS if posterior.info.sampling == "iid" else None
                tree = card.predict(posterior, folder=folder, num_draws=draws, weights=False)
        except _OutOfTimeError:
            return replace(blank, processor=limit, refused=f"Given up after {limit:g} seconds of processor time.")
        except (ValueError, RuntimeError, ArithmeticError) as error:
            if isinstance(error, ZooError):
                raise
            return replace(blank, refused=str(error))
    if not all(np.isfinite(values).all() for values in tree["conditional"].to_dataset().values()):
        return replace(blank, refused="The fit diverged: its predictions are not finite.")
    said = {each.category.__name__ for each in caught if issubclass(each.category, FitWarning)}
    found = measured(tree, card, card.data(folder))
    found |= {
        "seconds": posterior.info.seconds,
        "compiling": posterior.info.compiling,
        "processor": _processor_time() - begun,
    }
    return replace(blank, **_rounded(found), gradients=posterior.info.num_gradients, warnings=tuple(sorted(said)))


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

    def enter_all(found: Iterable[Cell]) -> None:
        for cell in found:
            cells[_place(cell)] = cell
            write_cells(cells.values(), path, small)
            announce(cell)

    for seed in range(seeds):
        blanks = [
            _blank(card, name, seed, small) for card in chosen for name in (known if methods is None else methods)
        ]
        todo = [blank for blank in blanks if not _is_done(blank, cells, limit)]
        enter_all(_measured_by(workers, [(blank.card, blank.method, seed) for blank in todo], options))
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
        **_rounded(measured(tree, card, card.data(folder))),
    )
    cells = {_place(each): each for each in read_cells(path)} | {_place(cell): cell}
    write_cells(cells.values(), path)
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


def write_cells(cells: Iterable[Cell], path: Path, small: bool = False) -> None:
    """Write cells, and the settings of their methods, to a file, whole or not at all."""
    cells = sorted(cells, key=lambda cell: (cell.card, cell.method, cell.seed))
    known = {_digest(text): text for text in (_settings(_method(name, small)) for name in table_methods())}
    used = {key: json.loads(known[key]) for key in sorted({cell.settings for cell in cells}) if key in known}
    if path.is_file():
        used = json.loads(path.read_text()).get("settings", {}) | used
    lines = ",\n".join(json.dumps(_without_blanks(cell), allow_nan=False) for cell in cells)
    text = f'{{"settings": {json.dumps(used, indent=1)},\n"cells": [\n{lines}\n]}}\n'
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


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


def _method(name: str, small: bool) -> Method:
    method = table_methods()[name]
    return smoke(method) if small else method


def _settings(method: Method) -> str:
    return json.dumps({"method": type(method).__name__, **config_of(method)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _blank(card: Card, name: str, seed: int, small: bool) -> Cell:
    settings = _digest(_settings(_method(name, small)))
    return Cell(card=card.name, method=name, version=card.version, seed=seed, settings=settings)


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


def _without_blanks(cell: Cell) -> dict[str, object]:
    return {key: value for key, value in asdict(cell).items() if value is not None or key == "warnings"}


def _rounded(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers with five digits, which are more than Monte Carlo errors leave."""
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in found.items()}


def _processor_time() -> float:
    """Return the processor time of this process and its children, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Raise `_OutOfTimeError` after some seconds of processor time, and again until it is heard."""
    if seconds is None or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds, 5.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
