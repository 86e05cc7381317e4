"""The picture of ``benchmarks/many_growth.py``: what many fits take as they grow in number.

Run: python -m benchmarks.plot_many_growth [file]      (without a file, the documentation takes the figure)
"""

import json
import sys

import matplotlib.pyplot as plt

from benchmarks.pairs import RESULTS

STYLES = {"NUTS": ("C0", "o", "-"), "Laplace": ("C1", "s", "--"), "MeanFieldVI": ("C2", "^", ":")}

record = json.loads((RESULTS / "many_growth.json").read_text())
figure, (seconds, memory) = plt.subplots(2, 1, figsize=(4.5, 5), sharex=True, layout="constrained")
for name, runs in record["methods"].items():
    color, marker, line = STYLES[name]
    style = {"color": color, "marker": marker, "linestyle": line, "markersize": 5, "label": name}
    sizes = [int(number) for number in runs]
    seconds.loglog(sizes, [run["processor"] for run in runs.values()], **style)
    memory.semilogx(sizes, [run["memory"] - runs["1"]["memory"] for run in runs.values()], **style)
seconds.set_ylabel("seconds of processor time")
memory.set_ylabel("MiB above one fit")
memory.set_ylim(bottom=0)
memory.set_xlabel("fits")
seconds.legend(frameon=False)
for panel in (seconds, memory):
    panel.grid(alpha=0.3)
if sys.argv[1:] and __name__ == "__main__":
    figure.savefig(sys.argv[1], dpi=150)
