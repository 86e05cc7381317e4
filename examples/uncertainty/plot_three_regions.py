"""
Overlap, clean classes and no data
==================================

Two classes of one input. From 3.5 to 4.5 they overlap: a label there is uncertain, however many are observed. From -6 to -2
there is one class only. From -2 to 2 there are no observations, and the classes on both sides differ: nothing says where one
ends and the other begins. Aleatoric and epistemic uncertainty tell these regions apart, and what they say in the gap depends on
the prior.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# The data of a lecture, 200 observations: class 0 to the left of the gap, class 1 to its right, either class with probability one
# half from 3.5 to 4.5, and class 0 again beyond.

data = bz.datasets.binary()
x, y = data.x, data.y

method = bz.NUTS(num_chains=4, num_warmup=150, num_draws=100, max_tree_depth=6)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.MAP(num_members=4, num_steps=50, polish_steps=0)
# sphinx_gallery_end_ignore
priors = {"fan_in(1)": bz.priors.fan_in(1.0), "fan_in(5)": bz.priors.fan_in(5.0)}
grid = np.linspace(-8, 8, 161)[:, None]
trees = {}
for name, prior in priors.items():
    model = bz.models.supervised(bz.models.mlp(1, (20,), 2), prior, bz.likelihoods.categorical())
    posterior = bz.fit(model, method, x / 4, y, seed=0, progress=False)
    trees[name] = bz.predict(posterior, grid / 4)

# %%
# Total, aleatoric and epistemic uncertainty along x, in nats.

figure, axes = plt.subplots(2, len(trees), figsize=(10, 5), sharex=True, sharey="row", layout="constrained")
regions = {"clean": (-6, -2), "no data": (-2, 2), "overlap": (3.5, 4.5)}
for column, (name, tree) in zip(axes.T, trees.items(), strict=True):
    probs = tree["conditional"]["probs"].isel(class_id=1)
    low, high = probs.quantile([0.05, 0.95], ("chain", "draw")).values
    column[0].fill_between(grid[:, 0], low, high, alpha=0.3)
    column[0].plot(grid[:, 0], probs.mean(("chain", "draw")))
    column[0].plot(x, y, "k|", markersize=8)
    column[0].set(title=name, ylabel="probability of class 1")
    parts = bz.uncertainty.decompose(tree)
    for part in ("total", "aleatoric", "epistemic"):
        column[1].plot(grid[:, 0], parts[part], label=part)
    column[1].set(xlabel="x", ylabel="nats")
    for region, (left, right) in regions.items():
        inside = parts.isel(obs_id=(grid[:, 0] >= left) & (grid[:, 0] <= right)).mean()
        print(
            f"{name}, {region:8}", {part: round(float(inside[part]), 3) for part in ("total", "aleatoric", "epistemic")}
        )
axes[1, 0].legend(fontsize="small")

# %%
# Where classes overlap, the uncertainty is aleatoric under both priors: 0.61 of 0.63 nats, and 0.68 of 0.68. Where one class is
# alone there is little of it under the wide prior. In the gap this prior allows the change of class at any place: the curves of
# its draws are steep, and differ, and half of the uncertainty is epistemic. In the middle the two kinds together are as large as
# in the overlap, where nearly all is aleatoric: the total does not tell the regions apart, and its parts do. The narrow prior
# allows smooth functions only: they agree that the change is gradual, and what they agree on is counted as aleatoric. The total
# is nearly twice that under the wide prior, and 4 percent of it is epistemic: a small epistemic part does not mean that a region
# is known.

plt.show()
