"""The picture of ``benchmarks/growth.py``: what a gradient of all chains costs as one thing grows.

Run: python -m benchmarks.plot_growth [file]      (without a file, the documentation takes the figure)
"""

import json
import sys

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.pairs import RESULTS

LABELS = {"hidden": "parameters", "chains": "chains", "rows": "rows"}
NAMES = {"numpyro": "NumPyro"}
STYLES = {"bnnzoo": {"color": "C0", "marker": "o"}, "numpyro": {"color": "C1", "marker": "s", "linestyle": "--"}}


def draw(axes: Axes, axis: str) -> None:
    """Draw the medians of one axis, on scales that make a proportional cost a straight line."""
    record = json.loads((RESULTS / f"growth_{axis}.json").read_text())
    for library, style in STYLES.items():
        medians = {int(k.split(", ")[1]): v for k, v in record["medians"].items() if k.startswith(f"{library}, ")}
        sizes = [record["facts"]["params"][str(size)] if axis == "hidden" else size for size in medians]
        axes.loglog(
            sizes, [value / 1e3 for value in medians.values()], label=NAMES.get(library, library), markersize=4, **style
        )
    middle = dict(record["facts"]["middle"])
    middle["hidden"] = record["facts"]["params"][str(middle["hidden"])]
    axes.set_title(", ".join(f"{middle[other]:,} {LABELS[other]}" for other in LABELS if other != axis), fontsize=9)
    axes.set_xlabel(LABELS[axis])
    axes.grid(alpha=0.3)


figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for panel, name in zip(panels, LABELS, strict=True):
    draw(panel, name)
panels[0].set_ylabel("ms a gradient of all chains")
panels[0].legend(frameon=False)
if sys.argv[1:] and __name__ == "__main__":
    figure.savefig(sys.argv[1], dpi=150)
