"""Colours and style of the figures in a report."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["INK", "MUTED", "clean", "colours", "look", "new_figure"]

INK = "#22313f"
MUTED = "#8795a1"
GRID = "#e6ebef"
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
def look() -> Iterator[None]:
    """Use the report's settings of matplotlib, temporarily."""
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]  # a name for each of matplotlib's settings
        yield


def new_figure(
    num_panels: int, width: float = 10.0, height: float = 3.4, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side, independent of pyplot's global state.

    Parameters
    ----------
    num_panels : int
    width, height : float
        Size of one row of at most three panels, in inches.
    share : bool
        Whether panels share both axes.
    """
    num_columns = 2 if num_panels == 4 else min(3, num_panels)
    num_rows = -(-num_panels // num_columns)
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
