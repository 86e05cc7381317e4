"""
Stochastic-gradient MCMC on mini-batches
========================================

When the data are large, a gradient on all rows is expensive. Stochastic-gradient samplers move along gradients of
mini-batches instead. They accept every step, so that their draws have a bias, which grows with the step size and with the
noise of the gradients. This example compares four of them with NUTS on data that are small enough for NUTS.
"""

import sys
from dataclasses import replace

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# A thousand observations of a sine with a gap, a network with one hidden layer, and batches of 50 rows.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, -1, 500), rng.uniform(0.5, 2, 500)])[:, None]
y = np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(len(x))
grid = np.linspace(-4, 3, 60)[:, None]
model = bz.models.supervised(bz.models.mlp(1, (10,)), bz.priors.fan_in(2.0, 2.0), bz.likelihoods.gaussian(0.3))

# %%
# All four stochastic samplers take the same number of gradients. Chains start at members that were trained on mini-batches.

budget = {"num_chains": 4, "num_warmup": 200, "num_draws": 400, "batch_size": 50, "steps_per_draw": 50}
methods = {
    "SGLD": bz.SGLD(**budget),
    "SGHMC": bz.SGHMC(**budget),
    "cyclical SGLD": bz.CyclicalSGMCMC(**budget, num_cycles=20),
    "stochastic MCLMC": bz.StochasticMCLMC(**budget),
    "NUTS": bz.NUTS(num_warmup=300, num_draws=300),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    short = {"num_warmup": 20, "num_draws": 20, "steps_per_draw": 5, "optimise_steps": 100}
    methods = {name: replace(method, **short) for name, method in methods.items() if name != "NUTS"}
    methods["NUTS"] = bz.NUTS(num_chains=2, num_warmup=30, num_draws=20, max_tree_depth=4)
# sphinx_gallery_end_ignore
trees = {}
for name, method in methods.items():
    posterior = bz.fit(model, method, x, y, seed=0, progress=False)
    trees[name] = bz.predict(posterior, grid)
    found = bz.diagnostics.function_space(trees[name])
    print(
        f"{name}: {posterior.info.num_gradients} gradients, largest R-hat of f {float(found['rhat'].max()):.2f}, "
        f"minimum ESS {float(found['ess_bulk'].min()):.0f}"
    )

# %%
# Mean and standard deviation of f. NUTS is the reference where its chains agree. Where a stochastic sampler has a large R-hat it
# has not mixed: its steps are short, because gradient noise would otherwise inflate the variance.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for name, tree in trees.items():
    f = az.extract(tree, group="conditional", combined=False)["mean"]
    style = {"color": "black", "linewidth": 2} if name == "NUTS" else {}
    left.plot(grid[:, 0], f.mean(("chain", "draw")), label=name, **style)
    right.plot(grid[:, 0], f.std(("chain", "draw")), label=name, **style)
left.plot(x[::10, 0], y[::10], ".", color="grey", markersize=3)
left.set(title="Mean of f", xlabel="x")
right.set(title="Standard deviation of f", xlabel="x", yscale="log")
right.legend()
plt.show()
