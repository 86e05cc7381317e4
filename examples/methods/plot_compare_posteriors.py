"""
Comparing approximations with NUTS
==================================

Two approximations are compared with NUTS in function space, where posteriors of networks are comparable. Each
distance comes with a Monte Carlo floor: the distance between two halves of the NUTS chains.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# One model, three posteriors, predictions on a grid.

data = bz.datasets.gap(num_data=40, noise=0.3)
model = bz.models.supervised(bz.models.mlp(1, hidden=(10,)), bz.priors.fan_in(2.0), bz.likelihoods.gaussian())
methods = {
    "NUTS": bz.NUTS(num_draws=500),
    "mean-field VI": bz.MeanFieldVI(num_steps=5000, num_averaged=100),
    "Laplace": bz.Laplace(),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods["NUTS"] = bz.NUTS(num_chains=2, num_warmup=8, num_draws=20, max_tree_depth=2)
    methods["mean-field VI"] = bz.MeanFieldVI(num_steps=300, num_averaged=100)
# sphinx_gallery_end_ignore
grid = np.linspace(-3.0, 3.0, 61)[:, None]
trees = {
    name: bz.predict(bz.fit(model, method, data.x, data.y, seed=0, progress=False), grid)
    for name, method in methods.items()
}

# %%
# First: has the reference converged? R-hat and effective sample sizes of the predictions.

diagnosis = bz.diagnostics.function_space(trees["NUTS"])
print(diagnosis[["rhat", "ess_bulk", "ess_tail"]].quantile([0.0, 0.5, 1.0]).to_dataframe().round(2))

# %%
# Then the distances: the fraction of grid points whose distance is at most d. The dashed line is the floor.

comparison = bz.diagnostics.compare_posteriors(trees, reference="NUTS")
bz.plots.plot_posterior_comparison(comparison)
print(comparison[["wasserstein", "wasserstein_floor", "sd_ratio"]].mean("obs_id").to_dataframe().round(3))

# %%
# All distances in one forest: mean and interquartile range over the grid, in gray those of the floor, and the limit of the mean
# (a cross). Means to the left of their limit are no evidence of a difference. Both approximations lie to the right of it: by the
# Wasserstein distance, Laplace at a quarter of a standard deviation, mean-field VI at one and a half.

bz.plots.plot_comparison_forest(comparison, figure_kwargs={"figsize": (10, 2.8)})
for name in ("mean_difference", "log_sd_ratio", "wasserstein"):
    for method in comparison["model"].values:
        found = comparison.sel(model=method)
        print(f"{name:16} {method:14} {float(found[name].mean()):.3f}, limit {float(found[f'{name}_limit']):.3f}")
plt.show()

# %%
# The same in words: where each method differs, in which direction, by how much, and what to do.

for verdict in bz.diagnostics.verdicts(trees, reference="NUTS").values():
    print(verdict)
