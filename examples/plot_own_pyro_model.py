"""
A Pyro model of one's own
=========================

Any Pyro model with continuous latent variables can be fitted, with a network in it or without. Here a trend of unknown
shape, a small network, is shared by six groups, each with an offset of its own whose spread is learned.
"""

import argparse

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# Simulated data: 15 observations in each group around a sine, offsets with standard deviation 1, noise 0.3.

NUM_GROUPS = 6
rng = np.random.default_rng(1)
group = np.repeat(np.arange(NUM_GROUPS), 15)
x = rng.uniform(-2.0, 2.0, (len(group), 1))
offsets = rng.normal(size=NUM_GROUPS)
y = np.sin(2 * x[:, 0]) + offsets[group] + rng.normal(scale=0.3, size=len(group))

# %%
# The model is plain Pyro; ``random_module`` samples the network's weights inside it. The offsets are written as a
# standard normal number times their spread, which is the form that samplers like.

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
# NUTS, with arrays of numpy handed over as they are.

settings = {"num_warmup": 50, "num_draws": 50, "max_tree_depth": 4} if smoke else {"num_warmup": 300, "num_draws": 300}
posterior = bz.fit(model, bz.NUTS(num_chains=2, **settings), x, group, y, seed=0)
train = bz.posterior_predictive(posterior, x, group, y)
print(az.summary(train, var_names=["spread", "noise"]))

# %%
# Did the sampler converge? R-hat of network weights says little, since permuting the hidden units changes the weights
# and not the function. R-hat of predictions says what matters; here is the worst of the observations.

print(bz.diagnostics.function_space(train).max())

# %%
# Posterior predictive check and leave-one-out score are ArviZ's own.

az.plot_ppc_dist(train)
print(az.loo(train))

# %%
# What the model says about each group's trend, at new inputs: one call for all of them.

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
