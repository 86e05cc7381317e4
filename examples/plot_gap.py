"""
Between clusters of data
========================

Two clusters of observations and nothing between them: how uncertain is a network in the gap? The posterior of a wide network is
very uncertain there. A Gaussian with independent entries cannot be: to fit both clusters it must be sure of each weight by
itself, and is then sure in the gap, too. A Laplace approximation keeps the dependence between weights and, with predictions
linearised at the mode, sees the gap.

The set-up is that of Foong, Burt, Li and Turner (2020), On the expressiveness of approximate inference in Bayesian neural
networks, in one dimension.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# Forty observations in two clusters, noise 0.1.

torch.set_default_dtype(torch.float64)  # the curvature of a network is badly conditioned
rng = np.random.default_rng(0)
x = np.concatenate([rng.normal(-1.0, 0.1, 20), rng.normal(1.0, 0.1, 20)])[:, None]
y = np.sin(2.5 * x[:, 0]) + 0.1 * rng.normal(size=40)
grid = np.linspace(-2.0, 2.0, 101)[:, None]

# %%
# One hidden layer, with a prior under which functions vary by about four.

net = bz.models.mlp(1, hidden=(10,))
model = bz.models.supervised(net, bz.priors.fan_in(4.0), bz.likelihoods.gaussian(scale=0.1))

nuts = {"num_warmup": 150, "num_draws": 150, "max_tree_depth": 7}
nuts = {"num_warmup": 5, "num_draws": 10, "max_tree_depth": 3} if smoke else nuts
steps = {"num_steps": 100, "num_averaged": 20} if smoke else {"num_steps": 3000, "num_averaged": 500}
methods = {
    "NUTS": bz.NUTS(num_chains=2, **nuts),
    "mean-field VI": bz.MeanFieldVI(**steps),
    "Laplace, linearised": bz.Laplace(bz.MAP(num_members=4, num_steps=500, polish_steps=1000)),
}

# %%
# The conditional mean of each draw is the network's function; its spread over draws is what the model does not know.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharex=True, sharey=True, constrained_layout=True)
for axis, (name, method) in zip(axes, methods.items(), strict=True):
    posterior = bz.fit(model, method, x, y, seed=0, progress=False)
    function = bz.predict(posterior, grid, num_draws=10 if smoke else 150)["conditional"]["mean"]
    mean, sd = (function.mean(("chain", "draw")).to_numpy(), function.std(("chain", "draw")).to_numpy())
    axis.fill_between(grid[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.3, linewidth=0)
    axis.plot(grid[:, 0], mean)
    axis.plot(x[:, 0], y, "k.", markersize=3)
    axis.set(title=f"{name}: sd {sd[50]:.2f} at x = 0", xlabel="x", ylim=(-6, 6))
axes[0].set_ylabel("f(x), mean and two sds")
plt.show()

# %%
# Mean-field VI is confident where there are no data at all. More steps or particles do not help: the family is at fault.
# Laplace knows one mode of many, but keeps the dependence between weights: its width in the gap is of the right order.
