"""
Weight-space symmetries and mode connectivity
=============================================

Exchanging two hidden units of a network changes its weights and not its function. Chains may therefore agree on every
prediction and disagree on every weight, and two members of an ensemble may be the same mode in another order. Matching their
hidden units tells.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

# %%
# A bump, which two hidden units describe: one goes up and the other down. NUTS samples the network, and an ensemble of modes is
# fitted.

rng = np.random.default_rng(0)
x = rng.uniform(-2.0, 2.0, size=(80, 1))
y = np.tanh(3 * (x[:, 0] + 1)) - np.tanh(2 * (x[:, 0] - 0.7)) + 0.2 * rng.normal(size=80)
model = bz.models.supervised(bz.models.mlp(1, hidden=(2,)), bz.priors.fan_in(3.0), bz.likelihoods.gaussian(0.2))
nuts = bz.NUTS(num_chains=4, num_warmup=1000, num_draws=500, target_accept=0.9)
modes = bz.MAP(num_members=8, num_steps=3000)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    nuts = bz.NUTS(num_chains=2, num_warmup=60, num_draws=20, max_tree_depth=4)
    modes = bz.MAP(num_members=3, num_steps=100, polish_steps=0)
# sphinx_gallery_end_ignore
grid = np.linspace(-2.0, 2.0, 41)[:, None]
chains = bz.fit(model, nuts, x, y, seed=0, dtype=torch.float64, progress=False)
tree = bz.predict(chains, grid, num_draws=None)

# %%
# R-hat of the predictions, of the weights as they were sampled, and of the weights after the hidden units of every draw have been
# matched with those of one draw.

bz.plots.plot_rhat(tree)
weights = bz.diagnostics.weight_rhat(tree)
print(f"predictions        {float(bz.diagnostics.function_space(tree)['rhat'].max()):.2f}")
for name in ("raw", "canonical", "matched"):
    print(f"weights, {name:10}{float(weights[name].max()):.2f}")
print("functions among the chains:", int(bz.diagnostics.function_modes(tree)["num_modes"]))

# %%
# The predictions have converged. R-hat of the raw weights is above 2, since the chains have the two units in different orders and
# with different signs; it says nothing about convergence. After matching it is that of the predictions: two of the curves lie on
# top of each other, near one.
#
# Eight optimisations from different starts. How many different functions did they find?

members = bz.fit(model, modes, x, y, seed=0, dtype=torch.float64, progress=False)
found = bz.diagnostics.function_modes(bz.predict(members, grid))
print("functions among the members:", int(found["num_modes"]), found["mode"].values)

# %%
# The log density along the line from the first member to each of the others, with their weights as found (left) and with their
# hidden units matched (right). The barrier is how far the path falls below the line between its ends. Here all members are one
# mode: hundreds of nats or more lie between them as they are, and nothing once they are matched.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for other in range(1, len(found["mode"])):
    path = bz.validation.mode_connectivity(members, (0, 0), (0, other), num_points=41)
    same = bool(found["mode"][0] == found["mode"][other])
    for axis, name in zip(axes, ("raw", "matched"), strict=True):
        axis.plot(path["fraction"], path[name], color="C0" if same else "C1", alpha=0.7)
        axis.set(title=name, xlabel="fraction of the way")
    barriers = {name: f"{float(path[f'{name}_barrier']):.1f}" for name in ("raw", "matched")}
    print(f"member {other}, {'same' if same else 'other'} function: barrier", barriers)
axes[0].set(ylabel="log density")  # all paths on the right are flat
axes[0].set_yscale("symlog")
plt.show()
