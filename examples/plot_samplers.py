"""
Three exact samplers on one network
===================================

NUTS, ChEES-HMC and MAMS draw from the same posterior, so they are judged by what an effective draw of a *prediction* costs. The
currency is the gradient of the log density, nearly all of what a sampler does.

NUTS finds the length of every trajectory anew, by doubling it until it turns back, and throws part of the doubling away. The
other two learn one length for all chains during warm-up. MAMS also keeps its speed and lets the gradient only turn it, which
pays with more parameters than the 62 here.
"""

import argparse

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--smoke", action="store_true", help="a few draws, to see that the script runs")
short = parser.parse_args().smoke

# %%
# A wave with two gaps, and a network of one hidden layer.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, -1, 25), rng.uniform(0, 1.5, 25)])[:, None]
y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(len(x))
grid = np.linspace(-4, 3, 60)[:, None]
model = bz.models.supervised(
    bz.models.mlp(1, (4 if short else 20,)), bz.priors.fan_in(2.0, 2.0), bz.likelihoods.gaussian(0.1)
)

# %%
# Swapping the sampler is one argument.

budget = {"num_chains": 4, "num_warmup": 60 if short else 400, "num_draws": 40 if short else 400}
longest = {"max_steps": 32 if short else 1000}
methods = {
    "NUTS": bz.NUTS(**budget, max_tree_depth=5 if short else 10),
    "ChEES-HMC": bz.ChEESHMC(**budget, **longest),
    "MAMS": bz.MAMS(**budget, **longest),
}
trees, costs = {}, {}
for name, method in methods.items():
    posterior = bz.fit(model, method, x, y, seed=0, progress=False)
    trees[name] = bz.predict(posterior, grid)
    steps = posterior.info.sample_stats["n_steps"]
    effective = bz.diagnostics.function_space(trees[name])["ess_bulk"]
    costs[name] = effective / float(steps.sum()) * 1000
    print(f"{name}: {float(steps.double().mean()):.0f} steps a draw, smallest ESS {float(effective.min()):.0f}")

# %%
# Left, the three agree on mean and standard deviation of f, within and between the data. Right, what a thousand gradients of
# one chain buy at each x: the lowest point of a curve is what a careful statistician pays for.

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
