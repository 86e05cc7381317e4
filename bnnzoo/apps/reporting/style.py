"""Colours and style of the figures in a report, and the pictures that pages embed."""

import base64
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bnnzoo.documents.page import Picture

__all__ = ["INK", "MUTED", "clean", "colours", "drawn", "is_narrow", "look", "new_figure", "shown_rows"]

INK = "#22313f"
MUTED = "#8795a1"
GRID = "#e6ebef"
WIDE, NARROW = 10.0, 4.4  # inches
MAX_ROWS = 300
PALETTE = ("#20639b", "#d1495b", "#e6a02b", "#3a9278", "#7d5ba6", "#4d5d6c", "#c17c74", "#5fa8d3")
SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "text.color": INK,
    "text.parse_math": False,  # names of columns and classes may hold dollar signs
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "bnnzoo",
    "figure.facecolor": "white",
}


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return one colour per method, the same in every figure."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


@contextmanager
def look(*, narrow: bool = False) -> Iterator[None]:
    """Use the report's settings of matplotlib, temporarily; ``narrow`` places panels below each other, for phones."""
    size = (NARROW if narrow else WIDE, 3.4)
    with mpl.rc_context(SETTINGS | {"figure.figsize": size}):  # type: ignore[arg-type]  # a name for each setting
        yield


def is_narrow() -> bool:
    """Tell whether figures are drawn for narrow pages."""
    return bool(mpl.rcParams["figure.figsize"][0] <= NARROW)


def new_figure(num_panels: int, height: float = 3.4, share: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side, independent of pyplot's global state.

    Parameters
    ----------
    num_panels : int
    height : float
        Of one row of at most three panels, in inches.
    share : bool
        Whether panels share both axes.
    """
    num_columns = 1 if is_narrow() else 2 if num_panels == 4 else min(3, num_panels)
    num_rows = -(-num_panels // num_columns)
    width = NARROW if is_narrow() else WIDE
    figure = Figure(figsize=(width, height * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False, sharex=share, sharey=share).ravel()
    for spare in axes[num_panels:]:
        spare.set_visible(False)
    for lowest in axes[max(0, num_panels - num_columns) : num_panels]:  # above a spare panel, too
        lowest.tick_params(labelbottom=True)
    return figure, list(axes[:num_panels])


def clean(axes: Axes, title: str, xlabel: str, ylabel: str = "") -> None:
    """Set the title and the labels of a panel."""
    axes.set_title(title)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def shown_rows(size: int) -> NDArray[np.bool_]:
    """Return which of the rows are drawn one by one: at most three hundred, evenly spaced."""
    shown = np.zeros(size, dtype=bool)
    shown[np.unique(np.linspace(0, size - 1, min(size, MAX_ROWS)).round().astype(int))] = True
    return shown


def drawn(title: str, caption: str, function: Callable[[], Figure]) -> Picture:
    """Draw a figure for wide and for narrow pages.

    Parameters
    ----------
    title, caption : str
    function : callable
        Returns a new figure, by :func:`bnnzoo.apps.reporting.style.new_figure`.
    """
    images = []
    for narrow in (False, True):
        with look(narrow=narrow):
            figure = function()
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None})
            images.append(f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}")
    return Picture(title, caption, *images)
