"""Cells of the zoo's table: what one method comes to on one card, and the file that holds them."""

import hashlib
import json
import os
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.core.method import Method
from bnnzoo.diagnostics.function_space import function_values
from bnnzoo.engine.files import whole_file
from bnnzoo.inference.config import settings_as_json
from bnnzoo.zoo.budgets import smoke, table_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.measured import measured

__all__ = ["Cell", "blank_cell", "measure", "read_cells", "rounded", "settings_of", "write_cells"]

NUM_DRAWS = 1024
"""Draws of a posterior that can have any number of them, as many as a reference keeps."""

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
        Processor seconds after which the fit is given up, whatever else the machine does; in a process of its own, and not on
        Windows.

    Returns
    -------
    Cell
        Refused if the method does not apply to the model, its fit fails, or it is given up.
    """
    blank, begun = blank_cell(card, name, seed, small), _processor_time()
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
    if not np.isfinite(function_values(tree)).all():  # a variance may be infinite, of Student noise
        return replace(blank, refused="The fit diverged: its predictions are not finite.")
    said = {each.category.__name__ for each in caught if issubclass(each.category, FitWarning)}
    with np.errstate(over="ignore"):
        found = measured(tree, card, card.data(folder))
    if not all(np.isfinite(value) for value in found.values() if value is not None):
        return replace(blank, refused="The fit diverged: the squares of its predictions overflow.")
    found |= {
        "seconds": posterior.info.seconds,
        "compiling": posterior.info.compiling,
        "processor": _processor_time() - begun,
    }
    return replace(blank, **rounded(found), gradients=posterior.info.num_gradients, warnings=tuple(sorted(said)))


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
    known = settings_of(cells, small)
    if path.is_file():
        known = json.loads(path.read_text()).get("settings", {}) | known
    used = {key: known[key] for key in sorted(known.keys() & {cell.settings for cell in cells})}
    lines = ",\n".join(json.dumps(_without_blanks(cell), allow_nan=False) for cell in cells)
    text = f'{{"settings": {json.dumps(used, indent=1)},\n"cells": [\n{lines}\n]}}\n'
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def settings_of(cells: Iterable[Cell], small: bool = False) -> dict[str, Any]:
    """Return the settings of which cells hold digests, by digest: those that methods have today."""
    known = {_digest(text): text for text in (settings_as_json(_method(name, small)) for name in table_methods())}
    return {key: json.loads(known[key]) for key in sorted({cell.settings for cell in cells}) if key in known}


def _method(name: str, small: bool) -> Method:
    method = table_methods()[name]
    return smoke(method) if small else method


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def blank_cell(card: Card, name: str, seed: int, small: bool) -> Cell:
    """Return a cell that has not been measured yet."""
    settings = _digest(settings_as_json(_method(name, small)))
    return Cell(card=card.name, method=name, version=card.version, seed=seed, settings=settings)


def _without_blanks(cell: Cell) -> dict[str, object]:
    return {key: value for key, value in asdict(cell).items() if value is not None or key == "warnings"}


def rounded(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers with five digits, which are more than Monte Carlo errors leave."""
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in found.items()}


def _processor_time() -> float:
    """Return the processor time of this process and its children, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Raise `_OutOfTimeError` after some seconds of processor time, and again until it is heard."""
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise ZooError(
            f"limit={seconds:g} cannot end a fit in a thread, as in those of a Dask worker: leave it out, or run in processes."
        )

    def end(*_: object) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds, 5.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
