"""
Methods against a reference posterior
=====================================

The zoo has small models with reference posteriors: long runs of an exact sampler that have converged. How far is each method
from the posterior it approximates, in units of the distance that Monte Carlo error alone would give?
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

warnings.simplefilter("ignore", bz.FitWarning)  # approximations are judged below

# %%
# A card has a model, its data, a prior and methods that suit it.

card = bz.zoo.load("polynomial-gap")
print(card)

# %%
# Fit it with each of its methods, and predict the card's test rows.

smoke = False
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    smoke = True
# sphinx_gallery_end_ignore
trees = {
    name: card.predict(
        card.fit(name, smoke=smoke, progress=False), num_draws=None if name in ("nuts", "mams") else 1000
    )
    for name in card.methods
}

# %%
# A ratio near one is as good as it gets. The posterior of this linear model is normal: full-rank VI and the Laplace approximation
# are exact but for Monte Carlo error, and mean-field VI is not, because the coefficients are correlated.

for name, tree in trees.items():
    found = bz.zoo.score(tree, card.name)
    print(f"{name:14}", "  ".join(f"{m}: {float(found['ratio'].sel(measure=m)):5.1f}" for m in found["measure"].values))

# %%
# Standard deviations of the function, over those of the reference.

grid = card.data().test["x"][:, 0]
reference = bz.zoo.reference(card.name)["summary"]["sd"]
figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for name, tree in trees.items():
    axis.plot(grid, tree["conditional"]["mean"].std(("chain", "draw")).values / reference.values, label=name)
axis.axhline(1.0, color="k", linewidth=0.8)
axis.axvspan(-1, 1, alpha=0.1, color="k")
axis.set(xlabel="x (no data between -1 and 1)", ylabel="sd(f) / reference", ylim=(0, None), xticks=np.arange(-3, 4))
axis.legend(fontsize="small", ncols=2)
plt.show()
