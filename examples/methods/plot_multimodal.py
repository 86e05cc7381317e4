"""
Several modes or one
====================

The posterior of a network has many modes. A variational Gaussian describes one of them; a deep ensemble finds several and
reduces each to a point; MultiSWAG describes a neighbourhood of several. This example measures what that is worth, as the first
figure of Wilson and Izmailov (2020) does: by the distance of each method's predictions to those of NUTS with many chains, as more
networks are averaged.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

warnings.simplefilter("ignore", bz.FitWarning)  # chains of NUTS disagree, which is the subject of this page

# %%
# Many modes of a network are one function with its hidden units permuted or their signs changed, and make no difference to
# predictions. Here is a posterior whose modes are different functions. The data have two bumps, and the network has two hidden
# units, which can describe one bump only. Every observation at x has a twin at -x, and the prior has the same symmetry, so
# both modes have exactly half of the probability.

random = np.random.default_rng(0)
places = np.concatenate([np.full(4, 2.0), np.full(4, 1.0), np.zeros(6)])
half = places + np.where(places > 0, 0.15, 0.3) * random.normal(size=len(places))
bumps = (places == 1.0) + 0.4 * random.normal(size=len(places))
x, y = np.concatenate([half, -half])[:, None], np.concatenate([bumps, bumps])
grid = np.linspace(-2.5, 2.5, 101)[:, None]
model = bz.models.supervised(bz.models.mlp(1, (2,)), bz.priors.fan_in(3.0, 3.0), bz.likelihoods.gaussian(0.4))

num_members = 20
methods = {
    "NUTS": bz.NUTS(num_chains=64, num_warmup=1000, num_draws=250, target_accept=0.95),
    "VI": bz.MeanFieldVI(num_steps=4000),
    "deep ensemble": bz.DeepEnsemble(num_members, num_steps=10_000),
    "MultiSWAG": bz.MultiSWAG(num_members),
    "wider MultiSWAG": bz.MultiSWAG(num_members, bz.SWAG(10_000, learning_rate=0.002, batch_size=1)),
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
    name: bz.predict(each, grid, num_draws={"NUTS": None, "deep ensemble": None, "VI": 1000}.get(name, 50))
    for name, each in posteriors.items()
}
functions = {
    name: tree["conditional"]["mean"].transpose("obs_id", "draw", "chain").values for name, tree in trees.items()
}

# %%
# A draw has the left bump if f(-1) > f(1). NUTS finds both modes, and 60 of its 64 chains stay where they are, so a mode's
# share is that of the chains that started near it. By symmetry it ought to be one half: if f(x) is a draw, so is f(-x). The
# reference is made of the draws of NUTS and their mirror images.

left, right = (int(np.abs(grid[:, 0] - place).argmin()) for place in (-1.0, 1.0))
gaps = {name: f[left] - f[right] for name, f in functions.items()}  # [draw, chain]
is_left = (gaps["NUTS"] > 0).mean(0)
r_hat = float(bz.diagnostics.function_space(trees["NUTS"])["rhat"].max())
print(
    f"chains of NUTS with the left bump only {(is_left == 1).sum()}, with the right one only {(is_left == 0).sum()}, with both "
    f"{((is_left > 0) & (is_left < 1)).sum()}; largest R-hat of f(x) {r_hat:.2f}"
)
reference = np.concatenate([functions["NUTS"], functions["NUTS"][::-1]], axis=1).reshape(len(grid), -1)
for name, gap in gaps.items():
    print(
        f"{name:20} share of draws with the left bump {(gap > 0).mean():.2f}; between the modes, |f(-1) - f(1)| below 0.4: "
        f"{(np.abs(gap) < 0.4).mean():.2f}"
    )

figure, axes = plt.subplots(2, len(trees), figsize=(2.6 * len(trees), 5), sharey="row", layout="constrained")
for column, (name, f) in zip(axes.T, functions.items(), strict=True):
    shown = random.permutation(f.reshape(len(grid), -1), axis=1)[:, :60]
    for each in shown.T:
        column[0].plot(grid[:, 0], each, color="C0" if each[left] > each[right] else "C1", alpha=0.25, linewidth=0.8)
    column[0].plot(x[:, 0], y, "k.", markersize=3)
    column[0].set(title=name, xlabel="x", ylim=(-1.5, 2.5))
    column[1].hist(gaps[name].ravel(), np.linspace(-2.5, 2.5, 41), density=True)
    column[1].set(xlabel="f(-1) - f(1)")
axes[0, 0].set_ylabel("f(x)")

# %%
# The distance to the reference as networks are added: the 1-Wasserstein distance between the distributions of f(x), averaged over
# the grid and over twenty random choices of the networks. Networks are taken from one member after the other, so that n networks
# see n members, as far as there are any. Draws of NUTS itself show how close n networks can come.

levels = np.linspace(0.005, 0.995, 100)
wanted = np.quantile(reference, levels, axis=1)
counts = np.array([1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000])

figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
for name, f in functions.items():
    possible = counts[counts <= f[0].size]
    found = np.zeros(len(possible))
    for _ in range(20):
        draws, chains = random.permutation(f.shape[1]), random.permutation(f.shape[2])
        in_turn = f[:, draws][:, :, chains].reshape(len(grid), -1)
        near = [np.abs(np.quantile(in_turn[:, :n], levels, axis=1) - wanted).mean() for n in possible]
        found += np.array(near) / 20
    axis.plot(possible, found, "k:" if name == "NUTS" else "o-", markersize=3, label=name)
    print(f"{name:20}", " ".join(f"{n}: {d:.3f}" for n, d in zip(possible, found, strict=True)))
axis.set(xscale="log", xlabel="networks averaged", ylabel="distance to the reference", ylim=(0, None))
axis.legend(fontsize="small")

# %%
# VI describes one mode and stays at a distance of 0.25. The deep ensemble comes to 0.14; its members are points.
# MultiSWAG's Gaussians are as wide as the noise of its gradients: with the default settings too narrow to matter (0.14), and with
# gradients of single observations wide enough for 0.09. A mixture of Laplace approximations comes to 0.08, and draws of NUTS to
# 0.07, since its chains are not divided equally between the modes.
#
# All mixtures have too many networks with no bump at all, which are between the modes in the histogram: 15 to 19 percent of draws
# instead of 2. It is a local optimum with little mass, and equal weights count optima.

plt.show()
