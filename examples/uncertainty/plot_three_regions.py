"""
Overlap, clean classes and no data
==================================

Two classes of one input. From 3.5 to 4.5 they overlap: a label there is uncertain, however many are observed. From -6 to -4
there is one class only. From -2 to 2 there are no observations. Aleatoric and epistemic uncertainty tell these regions apart,
and what they say in the gap depends on the prior.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# Class 0 to the left of the overlap and class 1 to its right, and between 3.5 and 4.5 either with probability one half.

rng = np.random.default_rng(0)
x = np.concatenate(
    [rng.uniform(-6, -4, 40), rng.uniform(2, 3.5, 30), rng.uniform(3.5, 4.5, 50), rng.uniform(4.5, 6, 30)]
)
probability = np.where(x < 3.5, 0.0, np.where(x < 4.5, 0.5, 1.0))
y = (rng.uniform(size=len(x)) < probability).astype(int)

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
    posterior = bz.fit(model, method, x[:, None] / 4, y, seed=0, progress=False)
    trees[name] = bz.predict(posterior, grid / 4)

# %%
# Total, aleatoric and epistemic uncertainty along x, in nats.

figure, axes = plt.subplots(2, len(trees), figsize=(10, 5), sharex=True, sharey="row", layout="constrained")
regions = {"clean": (-6, -4), "no data": (-2, 2), "overlap": (3.5, 4.5)}
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
# Where classes overlap, the uncertainty is aleatoric under both priors, and where one class is alone there is little of either.
# In the gap, the wide prior allows many functions, and about half of the uncertainty is epistemic. The narrow prior allows smooth
# ones only: they agree that the change from one class to the other is gradual, and what they agree on is counted as aleatoric. It
# is twice the total under the wide prior: a small epistemic part does not mean that a region is known.

plt.show()
