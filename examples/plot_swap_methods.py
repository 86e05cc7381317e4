"""
One model, three methods
========================

A network with uncertain weights is fitted to data with a gap in the middle: by NUTS, which draws from the posterior; by
mean-field variational inference, the Gaussian with independent entries that comes closest to it; and by Laplace's
method, the Gaussian of the log density's curvature at its mode. The model stays as it is; only the method changes.
"""

import argparse
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# The model: a network of one hidden layer, weights that shrink with the width of the layer, noise of unknown size.

data = bz.datasets.gap(num_data=40, noise=0.3)
model = bz.models.supervised(
    bz.models.mlp(1, hidden=(4 if smoke else 10,)),
    prior=bz.priors.fan_in(2.0),
    likelihood=bz.likelihoods.gaussian(),
)

# %%
# The methods: all settings live in the method object, and ``fit`` takes none of them.

if smoke:
    methods = {
        "NUTS": bz.NUTS(num_chains=2, num_warmup=50, num_draws=50, max_tree_depth=4),
        "mean-field VI": bz.MeanFieldVI(num_steps=500, num_averaged=100),
        "Laplace": bz.Laplace(),
    }
else:
    methods = {
        "NUTS": bz.NUTS(num_chains=4, num_warmup=300, num_draws=300),
        "mean-field VI": bz.MeanFieldVI(num_steps=5000),
        "Laplace": bz.Laplace(),
    }
posteriors = {name: bz.fit(model, method, data.x, data.y, seed=0) for name, method in methods.items()}

# %%
# Each becomes the same kind of tree. Here are the predictions on a grid that reaches beyond the data.

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
# Where there are data, the three agree. In the gap they do not: mean-field VI cannot say that weights move together,
# and pays for the fit at both sides with too much certainty in between. ArviZ compares them at five inputs, -4, -2, 0, 2
# and 4; it pads shorter chains with NaN and has to be told to skip them.

inputs = {"obs_id": [0, 40, 80, 120, 160]}
skip = {"skipna": True}
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", category=FutureWarning, message="In a future version of xarray")
    az.plot_forest(
        trees,
        group="conditional",
        var_names=["mean"],
        coords=inputs,
        combined=True,
        stats={"trunk": skip, "twig": skip, "point_estimate": skip},
    )

# %%
# The noise's standard deviation, which was 0.3 when the data were made.

for name, tree in trees.items():
    print(name, az.summary(tree, var_names=["sigma"]), sep="\n")

# %%
# How far the approximations are from NUTS, in units that mean something: distances between predictive distributions.

print(bz.diagnostics.compare_posteriors(trees, reference="NUTS"))
plt.show()
