"""The picture of the table of the zoo: the distance of each method from each reference posterior.

Run: python -m benchmarks.plot_zoo_table [file]      (without a file, the documentation takes the figure)
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from benchmarks.pairs import RESULTS
from bnnzoo.zoo.table import Cell, read_cells
from bnnzoo.zoo.zoo_commands import distance_text

LARGEST = 100.0


def draw(axes: Axes, cells: list[Cell]) -> None:
    """Draw a square for each card and method: pale at the Monte Carlo floor, dark a hundred times as far away."""
    measured = {(cell.card, cell.method): cell for cell in cells if cell.distance is not None}
    cards, methods = (list(dict.fromkeys(names)) for names in zip(*measured, strict=True))
    methods.sort(key=lambda name: np.median([cell.distance for (_, each), cell in measured.items() if each == name]))
    values = np.full((len(cards), len(methods)), np.nan)
    for (card, method), cell in measured.items():
        place = cards.index(card), methods.index(method)
        values[place] = cell.distance
        dark = (cell.distance or 0) > 15
        axes.text(
            *place[::-1], distance_text(cell), ha="center", va="center", fontsize=7, color="white" if dark else "black"
        )
    axes.imshow(values, norm=LogNorm(1, LARGEST), cmap="Blues", aspect="auto")
    axes.set_xticks(range(len(methods)), methods, rotation=45, ha="right")
    axes.set_yticks(range(len(cards)), cards)
    axes.set_title("Distance from the reference posterior, in Monte Carlo floors", fontsize=10)


figure, panel = plt.subplots(figsize=(8, 5), layout="constrained")
draw(panel, read_cells(RESULTS / "zoo_table.json"))
if sys.argv[1:] and __name__ == "__main__":
    figure.savefig(sys.argv[1], dpi=150)
