"""
ArviZ on every method
=====================

Whatever the method, the result is a ``DataTree`` in ArviZ's schema. So everything ArviZ can do, it can do here: summaries,
cross-validation, model comparison, and its plots. What differs between methods is what the numbers *mean*, and this
example says where.
"""

import argparse
import warnings

import arviz as az
import matplotlib.pyplot as plt

import bnnzoo as bz

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# One model, three methods, one call each for the tree of the training data.

data = bz.datasets.gap(num_data=60, noise=0.3)
model = bz.models.supervised(
    bz.models.mlp(1, hidden=(4 if smoke else 10,)),
    prior=bz.priors.fan_in(2.0),
    likelihood=bz.likelihoods.gaussian(),
)
methods = {
    "nuts": bz.NUTS(num_chains=2, num_warmup=100, num_draws=60, max_tree_depth=5)
    if smoke
    else bz.NUTS(num_warmup=300, num_draws=300),
    "mfvi": bz.MeanFieldVI(num_steps=500, num_averaged=100) if smoke else bz.MeanFieldVI(),
    "laplace": bz.Laplace(),
}
posteriors = {name: bz.fit(model, method, data.x, data.y, seed=0) for name, method in methods.items()}
trees = {name: bz.posterior_predictive(posterior, data.x, data.y) for name, posterior in posteriors.items()}
print(trees["nuts"])

# %%
# Summaries. The group ``posterior`` holds what is not a network weight, here the noise's standard deviation (0.3 in
# truth); weights have a group of their own, since R-hat and effective sample sizes of weights mean nothing where hidden
# units can be relabelled. R-hat is about chains: for the independent draws of an approximation it is 1 by construction.

for name, tree in trees.items():
    print(name, az.summary(tree), sep="\n")

# %%
# Approximate leave-one-out cross-validation, and a comparison of the three. All share one model, so a difference is the
# doing of the approximation. Where a Pareto k is high, the estimate is not to be trusted: predict held-out rows instead.

for name, tree in trees.items():
    print(name, az.loo(tree), sep="\n")
print(az.compare(trees))

# %%
# Draws and their distribution. With NUTS one looks for chains that mix; independent draws are white noise.

az.plot_trace_dist(trees["nuts"], var_names=["sigma"])
az.plot_trace_dist(trees["mfvi"], var_names=["sigma"])

# %%
# Posterior predictive check: data simulated from the fitted model against the data.

az.plot_ppc_dist(trees["nuts"], num_samples=20 if smoke else 50)

# %%
# All methods in one picture. Chains of NUTS and independent draws differ in number; ArviZ pads the shorter ones with NaN
# when it lays models over each other, and has to be told to skip them.

skip = {"skipna": True}
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", category=FutureWarning, message="In a future version of xarray")
    az.plot_forest(trees, combined=True, stats={"trunk": skip, "twig": skip, "point_estimate": skip})

# %%
# Trees are saved as netCDF, and come back as they were.

trees["nuts"].to_netcdf("nuts.nc", engine="h5netcdf")
print(az.from_netcdf("nuts.nc", engine="h5netcdf").attrs["inference_method"])
plt.show()
