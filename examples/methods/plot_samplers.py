"""
Efficiency of NUTS, ChEES-HMC and MAMS
======================================

All three samplers draw from the same posterior, so compare them by their cost: the number of gradients of the log
density, which take nearly all of the time, per effective draw of a *prediction*.

NUTS chooses the length of every trajectory anew, by doubling it until it turns back, and discards part of it. The
other two learn one trajectory length for all chains during warm-up. MAMS has microcanonical dynamics: its speed is
constant, and the gradient only changes its direction. This pays off with more parameters than the 62 here.
"""

import sys
from dataclasses import replace

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# A sine with two gaps, and a network with one hidden layer.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, -1, 25), rng.uniform(0, 1.5, 25)])[:, None]
y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(len(x))
grid = np.linspace(-4, 3, 60)[:, None]
model = bz.models.supervised(bz.models.mlp(1, (20,)), bz.priors.fan_in(2.0, 2.0), bz.likelihoods.gaussian(0.1))

# %%
# The samplers differ in one argument of ``fit``.

budget = {"num_chains": 4, "num_warmup": 400, "num_draws": 400}
methods = {"NUTS": bz.NUTS(**budget), "ChEES-HMC": bz.ChEESHMC(**budget), "MAMS": bz.MAMS(**budget)}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    short = {"num_warmup": 60, "num_draws": 40}
    methods["NUTS"] = replace(methods["NUTS"], **short, max_tree_depth=5)
    methods["ChEES-HMC"] = replace(methods["ChEES-HMC"], **short, max_steps=32)
    methods["MAMS"] = replace(methods["MAMS"], **short, max_steps=32)
# sphinx_gallery_end_ignore
trees, costs = {}, {}
for name, method in methods.items():
    posterior = bz.fit(model, method, x, y, seed=0, progress=False)
    trees[name] = bz.predict(posterior, grid)
    steps = posterior.info.sample_stats["n_steps"]
    effective = bz.diagnostics.function_space(trees[name])["ess_bulk"]
    costs[name] = effective / float(steps.sum()) * 1000
    print(f"{name}: {float(steps.double().mean()):.0f} steps per draw, minimum ESS {float(effective.min()):.0f}")

# %%
# Left: the samplers agree on the mean and standard deviation of f. Right: effective draws per thousand gradients of a
# chain, at each x. The minimum of a curve is what matters.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for colour, (name, tree) in zip(("C0", "C1", "C2"), trees.items(), strict=True):
    f = az.extract(tree, group="conditional", combined=False)["mean"]
    mean, sd = f.mean(("chain", "draw")), f.std(("chain", "draw"))
    left.plot(grid[:, 0], mean, colour, label=name)
    left.plot(grid[:, 0], mean - 2 * sd, colour, linestyle=":")
    left.plot(grid[:, 0], mean + 2 * sd, colour, linestyle=":")
    right.plot(grid[:, 0], costs[name], colour, label=name)
left.plot(x[:, 0], y, "k.", markersize=4)
left.set(xlabel="x", ylabel="f(x), mean and two sds", title="the same posterior")
highest = 1.3 * max(float(cost.max()) for cost in costs.values())
right.set(
    xlabel="x", ylabel="effective draws of f(x) per 1,000 gradients", title="at different cost", ylim=(0, highest)
)
right.legend(loc="upper center", ncols=3)
plt.show()
