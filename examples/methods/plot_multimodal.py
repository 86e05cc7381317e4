"""
Several modes or one
====================

The posterior of a network has many modes. A variational Gaussian describes one of them; a deep ensemble finds several and
reduces each to a point; MultiSWAG describes a neighbourhood of several. This example measures what that is worth, as the first
figure of Wilson and Izmailov (2020) does: by the distance of each method's predictions to those of NUTS with many chains, as more
networks are averaged.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

# %%
# Data in three clusters with gaps in between, and a network with one hidden layer.

random = np.random.default_rng(3)
x = np.concatenate([centre + 0.25 * random.normal(size=15) for centre in (-1.5, 0.0, 1.5)])[:, None]
y = np.sin(2.5 * x[:, 0]) + 0.4 * x[:, 0] + 0.15 * random.normal(size=len(x))
grid = np.linspace(-2.5, 2.5, 101)[:, None]
model = bz.models.supervised(bz.models.mlp(1, (20,)), bz.priors.fan_in(2.0), bz.likelihoods.gaussian(0.15))

num_members = 20
methods = {
    "NUTS": bz.NUTS(num_chains=16, num_warmup=400, num_draws=100, max_tree_depth=8),
    "VI": bz.MeanFieldVI(num_steps=4000),
    "deep ensemble": bz.DeepEnsemble(num_members, num_steps=3000),
    "MultiSWAG": bz.MultiSWAG(num_members, bz.SWAG(learning_rate=0.001, batch_size=5)),
    "mixture of Laplace": bz.MixtureOf(bz.Laplace(bz.MAP(num_steps=3000)), num_members),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_members = 3
    methods = {
        "NUTS": bz.NUTS(num_chains=2, num_warmup=20, num_draws=20, max_tree_depth=3),
        "VI": bz.MeanFieldVI(num_steps=50),
        "deep ensemble": bz.DeepEnsemble(num_members, num_steps=50),
        "MultiSWAG": bz.MultiSWAG(
            num_members, bz.SWAG(100, learning_rate=0.0001, batch_size=5, init=bz.MAP(num_steps=50))
        ),
    }
# sphinx_gallery_end_ignore
posteriors = {name: bz.fit(model, method, x, y, seed=0, dtype=torch.float64) for name, method in methods.items()}
trees = {
    name: bz.predict(each, grid, num_draws=None if name in ("NUTS", "deep ensemble") else 50)
    for name, each in posteriors.items()
}

# %%
# Ninety percent of f(x) under each posterior.

figure, axes = plt.subplots(1, len(trees), figsize=(3 * len(trees), 3), sharey=True, layout="constrained")
for axis, (name, tree) in zip(axes, trees.items(), strict=True):
    low, middle, high = tree["conditional"]["mean"].quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).values
    axis.fill_between(grid[:, 0], low, high, alpha=0.3)
    axis.plot(grid[:, 0], middle)
    axis.plot(x[:, 0], y, "k.", markersize=3)
    axis.set(title=name, xlabel="x", ylim=(-4, 4))

# %%
# The distance to NUTS as networks are added: the 1-Wasserstein distance between the distributions of f(x), averaged over the
# grid. Networks are taken from one mode after the other, so that n networks see n modes, as far as there are any.

reference = np.sort(trees["NUTS"]["conditional"]["mean"].stack(each=("chain", "draw")).values, 1)
levels = np.linspace(0.005, 0.995, 100)
wanted = np.quantile(reference, levels, axis=1)

counts = [n for n in (1, 2, 3, 5, 10, 20, 50, 100) if n <= 50 * num_members]
figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
for name in list(trees)[1:]:
    in_turn = trees[name]["conditional"]["mean"].transpose("obs_id", "draw", "chain").values.reshape(len(grid), -1)
    possible = [n for n in counts if n <= in_turn.shape[1]]
    distances = [float(np.abs(np.quantile(in_turn[:, :n], levels, axis=1) - wanted).mean()) for n in possible]
    axis.plot(possible, distances, "o-", markersize=3, label=name)
    print(f"{name:20}", " ".join(f"{n}: {d:.3f}" for n, d in zip(possible, distances, strict=True)))
axis.set(xscale="log", xlabel="networks averaged", ylabel="distance to NUTS", ylim=(0, None))
axis.legend(fontsize="small")

# %%
# One network of the ensemble is nearer to NUTS than one draw of VI, and further networks help little: members are points. Draws
# around several modes come closer the more of them are averaged, those of Laplace approximations most of all.

plt.show()
