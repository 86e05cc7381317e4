"""
A hierarchical model in Pyro
============================

bnnzoo fits Pyro models with or without a network. In this varying-intercept model a
small network is a nonlinear trend, which six groups share, and each group has its own offset.
"""

import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

# %%
# Simulated data: 15 observations per group around a sine, offsets with standard deviation 1, and noise 0.3.

NUM_GROUPS = 6
rng = np.random.default_rng(1)
group = np.repeat(np.arange(NUM_GROUPS), 15)
x = rng.uniform(-2.0, 2.0, (len(group), 1))
offsets = rng.normal(size=NUM_GROUPS)
y = np.sin(2 * x[:, 0]) + offsets[group] + rng.normal(scale=0.3, size=len(group))

# %%
# The model is plain Pyro; ``random_module`` samples the weights of the network. The offsets have a non-centred
# parametrisation, a standard normal variable times their standard deviation, which is easier to sample.

trend = bz.models.mlp(1, hidden=(8,))


def model(x: torch.Tensor, group: torch.Tensor, y: torch.Tensor | None = None) -> None:
    """Observe ``y[N]`` around a common trend with an offset for each group."""
    f = bz.random_module("trend", trend, bz.priors.fan_in(2.0))(x).squeeze(-1)
    spread = pyro.sample("spread", dist.HalfNormal(2.0))
    with pyro.plate("groups", NUM_GROUPS):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
    offset = pyro.deterministic("offset", spread * z)
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f + offset[group], noise), obs=y)


# %%
# Fit it with NUTS. The arguments of the model are numpy arrays.

method = bz.NUTS(num_chains=2, num_warmup=300, num_draws=300)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.NUTS(num_chains=2, num_warmup=50, num_draws=50, max_tree_depth=4)
# sphinx_gallery_end_ignore
posterior = bz.fit(model, method, x, group, y, seed=0)
train = bz.posterior_predictive(posterior, x, group, y)
print(az.summary(train, var_names=["spread", "noise"]))

# %%
# Has the sampler converged? R-hat of the weights says little, since permuting the hidden units changes the weights
# but not the function. Use R-hat of the predictions instead. These are the maxima over observations:

print(bz.diagnostics.function_space(train).max())

# %%
# The posterior predictive check and leave-one-out cross-validation are ArviZ's.

az.plot_ppc_dist(train)
print(bz.diagnostics.loo(train))

# %%
# The trend of each group at new inputs: one call for all of them.

grid = np.tile(np.linspace(-2.0, 2.0, 41), NUM_GROUPS)
groups = np.repeat(np.arange(NUM_GROUPS), 41)
f = bz.predict(posterior, grid[:, None], groups)["conditional"]["mean"]
low, middle, high = f.quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).values

figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
for g, axis in enumerate(axes.flat):
    new, seen = groups == g, group == g
    axis.fill_between(grid[new], low[new], high[new], alpha=0.3)
    axis.plot(grid[new], middle[new])
    axis.plot(x[seen, 0], y[seen], "k.", markersize=4)
    axis.set_title(f"group {g}")
plt.show()
