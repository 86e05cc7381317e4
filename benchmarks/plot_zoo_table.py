"""The picture of the table of the zoo: the distance of each method from each reference posterior, and what it costs.

Run: python -m benchmarks.plot_zoo_table [file]      (without a file, the documentation takes the figure)
"""

import sys
from statistics import median

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from benchmarks.pairs import RESULTS
from bnnzoo.zoo.catalogue import NAMES, NETWORKS
from bnnzoo.zoo.cells import Cell, read_cells
from bnnzoo.zoo.table import own_and_others
from bnnzoo.zoo.zoo_commands import distance_text

LARGEST = 100.0


def draw(axes: Axes, cells: list[Cell], title: str) -> None:
    """Draw a square for each card and method: pale at the Monte Carlo floor, dark a hundred times as far away."""
    measured: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.distance is not None:
            measured.setdefault((cell.card, cell.method), []).append(cell)
    distances = {key: median(cell.distance or 0.0 for cell in seeds) for key, seeds in measured.items()}
    cards = sorted({card for card, _ in measured}, key=NAMES.index)
    methods = sorted(
        {method for _, method in measured},
        key=lambda name: np.median([value for (_, each), value in distances.items() if each == name]),
    )
    values = np.full((len(cards), len(methods)), np.nan)
    for (card, method), distance in distances.items():
        place = cards.index(card), methods.index(method)
        values[place] = distance
        color = "white" if distance > 15 else "black"
        text = distance_text(measured[card, method])
        axes.text(*place[::-1], text, ha="center", va="center", fontsize=6, color=color)
    axes.imshow(values, norm=LogNorm(1, LARGEST), cmap="Blues", aspect="auto")
    axes.axhline(sum(card not in NETWORKS for card in cards) - 0.5, color="black", lw=0.8)
    axes.set_xticks(range(len(methods)), methods, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(cards)), cards, fontsize=8)
    axes.set_title(title, fontsize=10)


def draw_costs(axes: Axes, cells: list[Cell]) -> None:
    """Draw median distance against median processor time, a point for each method, statistical models and networks."""
    for is_network, marker, label in ((False, "o", "statistical models"), (True, "s", "networks")):
        kind = [cell for cell in cells if cell.distance is not None and (cell.card in NETWORKS) is is_network]
        places = {
            method: (median(cell.processor or 0.0 for cell in found), median(cell.distance or 0.0 for cell in found))
            for method in {cell.method for cell in kind if cell.processor}
            if (found := [cell for cell in kind if cell.method == method])
        }
        for number, (method, place) in enumerate(sorted(places.items(), key=lambda each: each[1][1])):
            axes.plot(*place, marker, color="C1" if is_network else "C0", ms=4, label=None if number else label)
            if is_network:  # labels left and right in turn, so that those of neighbours do not overlap
                offset, side = ((4, -2), "left") if number % 2 else ((-4, -2), "right")
                axes.annotate(method, place, xytext=offset, textcoords="offset points", fontsize=6, ha=side)
    axes.axhline(1.0, color="grey", lw=0.8, ls=":")
    axes.set(xscale="log", yscale="log", xlabel="processor seconds", ylabel="floors")
    axes.set_title("Cost and distance, medians over cards", fontsize=10)
    axes.margins(x=0.12)
    axes.legend(fontsize=7, frameon=False)


own, others = own_and_others(read_cells(RESULTS / "zoo_table.json"))
heights = [0.22 * len({cell.card for cell in part}) + 1 for part in (own, others)]
figure, (panel, costs, programs) = plt.subplots(
    3, 1, figsize=(11, 6 + sum(heights)), layout="constrained", height_ratios=(heights[0], 4, heights[1])
)
draw(panel, own, "Distance from the reference posterior, in Monte Carlo floors")
draw_costs(costs, own)
draw(programs, others, "Other programs")
if sys.argv[1:] and __name__ == "__main__":
    figure.savefig(sys.argv[1], dpi=150)
