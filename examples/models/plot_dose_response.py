"""
Which dose is enough?
=====================

Two drugs against a cell line, in combination, on two plates. How the response bends is not known beforehand, so ``nn(a, b)``
learns it: a Bayesian neural network within a formula. The questions are those of the laboratory: which dose of one drug kills
half of the cells, and does the other drug lower it?
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnnzoo as bz

# %%
# **The frame.** Six by six doses, as decimal logarithms of micromoles, each on both plates. The drugs help each other at high
# doses.

rng = np.random.default_rng(4)
doses = np.linspace(-2.0, 2.0, 6)
frame = pd.DataFrame(
    [(a, b, plate) for plate in ("P1", "P2") for a in doses for b in doses], columns=["a", "b", "plate"]
)
effect = 1.3 * (frame.a - 0.5) + 0.3 * (frame.b + 2.0) + 1.2 * np.maximum(frame.a, 0) * np.maximum(frame.b, 0)
frame["alive"] = 100 / (1 + np.exp(1.6 * effect)) + 4 * (frame.plate == "P2") + rng.normal(0.0, 5.0, len(frame))

# %%
# **A plane or a network?** ``check`` asks the data what each model leaves out.

method = bz.NUTS(target_accept=0.99)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.NUTS(num_chains=2, num_warmup=200, num_draws=100)
# sphinx_gallery_end_ignore
plane = bz.fit(bz.formula("alive ~ a * b + plate", frame), method, frame, progress=False)
network = bz.fit(bz.formula("alive ~ nn(a, b, hidden=(10,)) + plate", frame), method, frame, progress=False)
print(bz.check(plane), bz.check(network), sep="\n\n")

# %%
# **The response to drug a,** without and with ten micromoles of drug b, for plate 1.

steps = np.linspace(-2.0, 2.0, 81)
curve = bz.effects.predictions(network, {"a": steps, "b": [-2.0, 1.0], "plate": ["P1"]}, newdata="mean")
bz.plots.plot_predictions(curve, "a", hue="b", backend="matplotlib")

# %%
# **The dose that leaves half alive.** Every draw of the posterior is a curve, and has such a dose: the first at which fewer
# than 50% are alive. So it has an interval, and so has the shift that drug b brings.

means = curve.draws.reshape(-1, len(curve.rows))
half = {}
for b in (-2.0, 1.0):
    alive = means[:, (curve.rows["b"] == b).to_numpy()]
    half[b] = np.where((alive < 50).any(1), steps[(alive < 50).argmax(1)], np.inf)
quantiles = pd.DataFrame(
    {f"log dose of a, b at {10**b:g}": np.quantile(found, [0.05, 0.5, 0.95]) for b, found in half.items()}
)
quantiles["shift"] = np.quantile(half[1.0] - half[-2.0], [0.05, 0.5, 0.95])
print(quantiles.T.set_axis(["5%", "50%", "95%"], axis=1).round(2))
print(
    f"probability that b lowers the dose by a factor of two or more: {(half[1.0] - half[-2.0] < -np.log10(2)).mean():.3f}"
)

# %%
# **More than the sum?** Under additive action (Bliss) the survivors of both are the product of the survivors of each. Below
# zero, fewer survive than that.

at = {"a": [-2.0, 0.6], "b": [-2.0, 1.0], "plate": ["P1"]}
corners = bz.effects.predictions(network, at, newdata="mean")
alive = {
    (a, b): corners.draws[..., ((corners.rows["a"] == a) & (corners.rows["b"] == b)).to_numpy()].ravel() / 100
    for a in at["a"]
    for b in at["b"]
}
excess = alive[0.6, 1.0] * alive[-2.0, -2.0] - alive[0.6, -2.0] * alive[-2.0, 1.0]
print(
    f"excess survival {np.median(excess):.2f}, 90% interval {np.quantile(excess, 0.05):.2f} to {np.quantile(excess, 0.95):.2f}"
)
plt.show()
