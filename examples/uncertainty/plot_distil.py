"""
One network instead of a thousand draws
========================================

A service that answers thousands of requests a second cannot evaluate a thousand networks for each. ``bz.distil`` fits one network
to what the draws predict together: the mean, and how much of the uncertainty is noise and how much is due to the weights.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

# %%
# Observations on two intervals, with nothing between them.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-2, -0.7, 40), rng.uniform(0.6, 1.6, 40)])[:, None]
y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=80)

method = bz.MAMS(num_warmup=300, num_draws=500)
settings = {"num_points": 1024, "num_steps": 1600}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.MAP(num_members=6, num_steps=100, polish_steps=0)
    settings = {"num_points": 200, "num_steps": 100}
    warnings.simplefilter("ignore", bz.serving.InexactStudentWarning)  # which it is
# sphinx_gallery_end_ignore
model = bz.models.supervised(bz.models.mlp(1, (20,)), bz.priors.fan_in(3.0), bz.likelihoods.gaussian(scale=0.1))
posterior = bz.fit(model, method, x, y, seed=0, progress=False)

# %%
# The student learns from predictions by all draws: at the inputs, between them, and beyond them by half their range on either
# side. Its errors are measured at points that it did not learn from, in Monte Carlo floors: one floor is how far two halves of
# the draws are apart. The network has three outputs for each outcome, of which distil makes mean and variances.

network = bz.models.mlp(1, (64, 64, 64), 3, activation="relu")
student = bz.distil(posterior, x, network, **settings)
print(student)

# %%
# Draws and student, with two standard deviations: gray where there are data.

grid = np.linspace(-4.2, 3.8, 161)[:, None]
tree = bz.predict(posterior, grid, keep=("conditional",))
drawn, own = bz.uncertainty.decompose(tree), student.predict(grid)
mean, line = tree["conditional"]["mean"].mean(("chain", "draw")), grid[:, 0]

figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, layout="constrained")
for axes in (upper, lower):
    for low, high in ((-2, -0.7), (0.6, 1.6)):
        axes.axvspan(low, high, color="0.9", lw=0)
upper.fill_between(
    line, mean - 2 * drawn["total"] ** 0.5, mean + 2 * drawn["total"] ** 0.5, alpha=0.3, lw=0, label="draws"
)
upper.plot(line, own["mean"], "C1", label="student")
for sign in (-2, 2):
    upper.plot(line, own["mean"] + sign * own["sd"], "C1--", lw=1)
upper.plot(x[:, 0], y, "k.", ms=4)
upper.set(ylabel="y")
upper.legend(loc="upper left")
lower.semilogy(line, drawn["epistemic"] ** 0.5, lw=4, alpha=0.4, label="draws")
lower.semilogy(line, own["epistemic"] ** 0.5, "C1", lw=1.5, label="student")
lower.set(xlabel="x", ylabel="epistemic standard deviation")

# %%
# The file is read by torch alone.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "student.pt2"
    student.save(path)
    service = torch.export.load(path).module()
print(service(torch.tensor([[0.0], [9.0]])))

# %%
# How long a thousand rows take, by the draws and by the student.

rows, seconds = torch.linspace(-3, 3, 1000)[:, None], {}
for name, call in (
    ("draws", lambda: bz.predict(posterior, rows, keep=("conditional",))),
    ("student", lambda: student.module(rows)),
):
    times = []
    for _ in range(6):  # the first calls make graphs
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    seconds[name] = min(times)
print(f"draws {seconds['draws']:.3f} s, student {1000 * seconds['student']:.2f} ms")
plt.show()
