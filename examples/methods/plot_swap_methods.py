"""
One model, three methods
========================

The same Bayesian neural network is fitted by three methods to data with a gap in the middle: by NUTS, which draws
from the posterior; by mean-field variational inference, which finds the closest Gaussian with independent components;
and by the Laplace approximation, the Gaussian with the curvature of the log density at its mode. Only the method
object changes.
"""

import sys
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# The model: a network with one hidden layer, a prior whose scale decreases with the width of the layer, and Gaussian
# noise of unknown scale.

data = bz.datasets.gap(num_data=40, noise=0.3)
model = bz.models.supervised(
    bz.models.mlp(1, hidden=(10,)),
    prior=bz.priors.fan_in(2.0),
    likelihood=bz.likelihoods.gaussian(),
)

# %%
# The methods: a method object holds all settings, and ``fit`` has none.

methods = {
    "NUTS": bz.NUTS(num_chains=4, num_warmup=300, num_draws=300),
    "mean-field VI": bz.MeanFieldVI(num_steps=5000),
    "Laplace": bz.Laplace(),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods["NUTS"] = bz.NUTS(num_chains=2, num_warmup=50, num_draws=50, max_tree_depth=4)
    methods["mean-field VI"] = bz.MeanFieldVI(num_steps=500, num_averaged=100)
# sphinx_gallery_end_ignore
posteriors = {name: bz.fit(model, method, data.x, data.y, seed=0) for name, method in methods.items()}

# %%
# Every posterior gives the same kind of tree. Here are predictions on a grid that extends beyond the data.

grid = np.linspace(-4.0, 4.0, 161)[:, None]
trees = {name: bz.predict(posterior, grid) for name, posterior in posteriors.items()}

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
for axis, (name, tree) in zip(axes, trees.items(), strict=True):
    mean = tree["conditional"]["mean"]
    low, middle, high = mean.quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).values
    axis.fill_between(grid[:, 0], low, high, alpha=0.3, label="90% of f(x)")
    axis.plot(grid[:, 0], middle, label="median of f(x)")
    axis.plot(data.x[:, 0], data.y, "k.", markersize=3, label="data")
    axis.set(title=name, xlabel="x", ylim=(-3, 3))
axes[0].set_ylabel("y")
axes[0].legend(loc="lower right", fontsize="small")

# %%
# The methods agree where there are data, but not in the gap. Mean-field VI cannot represent correlations between
# weights: to fit the data on both sides it has to be certain about each weight, and is then overconfident in between.
# ArviZ compares the methods at the inputs -4, -2, 0, 2 and 4. It pads shorter chains with NaN and has to be told to
# skip them.

inputs = {"obs_id": [0, 40, 80, 120, 160]}
skip = {"skipna": True}
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", category=FutureWarning, message="In a future version of xarray")
    plots = az.plot_forest(
        trees,
        group="conditional",
        var_names=["mean"],
        coords=inputs,
        combined=True,
        stats={"trunk": skip, "twig": skip, "point_estimate": skip},
    )
plots.add_legend("model")

# %%
# The posterior of the noise standard deviation. The data were simulated with 0.3.

for name, tree in trees.items():
    print(name, az.summary(tree, var_names=["sigma"]), sep="\n")

# %%
# How far are the approximations from NUTS? The distances are between predictive distributions, averaged over the
# grid.

distances = bz.diagnostics.compare_posteriors(trees, reference="NUTS")
print(distances.mean("obs_id").to_dataframe().round(3).T)
plt.show()
