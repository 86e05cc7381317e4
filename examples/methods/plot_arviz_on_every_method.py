"""
ArviZ with MCMC, variational inference and Laplace
==================================================

Every method gives a ``DataTree`` in ArviZ's schema, so ArviZ's summaries and plots work for all of them. Some
statistics, however, are only meaningful for draws from the posterior. This example shows which.
"""

import sys
import warnings

import arviz as az
import matplotlib.pyplot as plt

import bnnzoo as bz

# %%
# One model, three methods, and a tree of the training data for each.

data = bz.datasets.gap(num_data=60, noise=0.3)
model = bz.models.supervised(
    bz.models.mlp(1, hidden=(10,)),
    prior=bz.priors.fan_in(2.0),
    likelihood=bz.likelihoods.gaussian(),
)
methods = {
    "nuts": bz.NUTS(num_warmup=300, num_draws=300),
    "mfvi": bz.MeanFieldVI(),
    "laplace": bz.Laplace(),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods["nuts"] = bz.NUTS(num_chains=2, num_warmup=100, num_draws=60, max_tree_depth=5)
    methods["mfvi"] = bz.MeanFieldVI(num_steps=500, num_averaged=100)
# sphinx_gallery_end_ignore
posteriors = {name: bz.fit(model, method, data.x, data.y, seed=0) for name, method in methods.items()}
trees = {name: bz.posterior_predictive(posterior, data.x, data.y) for name, posterior in posteriors.items()}
print(trees["nuts"])

# %%
# Summaries. The group ``posterior`` holds all sites that are not network weights, here the noise standard deviation
# (simulated with 0.3). Weights have a group of their own, since R-hat and effective sample sizes of weights are
# meaningless if hidden units can be relabelled. R-hat compares Markov chains. The independent draws of an
# approximation form one chain, for which R-hat is undefined (NaN); that says nothing about the quality of the
# approximation.

for name, tree in trees.items():
    print(name, az.summary(tree), sep="\n")

# %%
# Leave-one-out cross-validation. ``az.loo`` assumes draws from the posterior, as NUTS gives; ``bz.diagnostics.loo``
# weights the draws of an approximation by the ratio of the two densities. If most Pareto k are above 0.7, as is common
# for networks, the result is not to be trusted: score held-out observations instead.

for name, tree in trees.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.diagnostics.UnreliableLooWarning)
        print(name, bz.diagnostics.loo(tree), sep="\n")

# %%
# Sensitivity to the prior: how much would the posterior of sigma move, if the prior of sigma, or the likelihood, counted a
# little more or less? The group ``log_prior`` has the log prior density of every site.

print(az.psense_summary(trees["nuts"], prior_var_names=["sigma"]))

# %%
# Trace plots. For NUTS, look for chains that mix well; independent draws are white noise.

az.plot_trace_dist(trees["nuts"], var_names=["sigma"])
az.plot_trace_dist(trees["mfvi"], var_names=["sigma"])

# %%
# Posterior predictive check: compare data simulated from the fitted model with the observed data.

az.plot_ppc_dist(trees["nuts"], num_samples=50)

# %%
# All methods in one plot. ArviZ pads trees that have fewer chains or draws with NaN, and has to be told to skip them.

skip = {"skipna": True}
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", category=FutureWarning, message="In a future version of xarray")
    plots = az.plot_forest(trees, combined=True, stats={"trunk": skip, "twig": skip, "point_estimate": skip})
plots.add_legend("model")

# %%
# Trees are saved as netCDF files.

trees["nuts"].to_netcdf("nuts.nc", engine="h5netcdf")
print(az.from_netcdf("nuts.nc", engine="h5netcdf").attrs["inference_method"])
plt.show()
