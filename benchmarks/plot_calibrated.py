"""The picture of ``benchmarks/calibrated.py``: the share of truths in intervals of 50%, and what is off.

Run: python -m benchmarks.plot_calibrated [file]      (without a file, the documentation takes the figure)
"""

import json
import sys

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.pairs import RESULTS

record = json.loads((RESULTS / "calibrated.json").read_text())["cells"]
pairs = [tuple(name.split(", ", 1)) for name in record]
methods, models = ([*dict.fromkeys(each)] for each in zip(*pairs, strict=True))
max_simulations = max(cell.get("simulations", 0) for cell in record.values())
coverage = np.full((len(methods), len(models)), np.nan)
figure, axes = plt.subplots(figsize=(8, 1.2 + 0.42 * len(methods)), layout="constrained")
for (method, model), cell in zip(pairs, record.values(), strict=True):
    place = methods.index(method), models.index(model)
    if "refused" in cell:
        axes.text(place[1], place[0], "refused", ha="center", va="center", fontsize=7, color="0.5")
        continue
    coverage[place] = cell["coverage_of_half"]
    text = "passes" if not cell["off"] else f"{cell['off']}/{cell['quantities']} off"
    text += "" if cell["simulations"] == max_simulations else f"\n(of {cell['simulations']})"
    axes.text(place[1], place[0], text, ha="center", va="center", fontsize=7)
shown = axes.imshow(coverage, vmin=0.2, vmax=0.8, cmap="RdBu", alpha=0.6, aspect="auto")
axes.set_xticks(range(len(models)), models, rotation=30, ha="right", fontsize=8)
axes.set_yticks(range(len(methods)), methods, fontsize=8)
figure.colorbar(shown, ax=axes, label="truths in intervals of 50%")
if sys.argv[1:] and __name__ == "__main__":
    figure.savefig(sys.argv[1], dpi=120)
