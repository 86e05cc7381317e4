"""
Chains that disagree: Neal's network regression
===============================================

The first example of Radford Neal's software for Bayesian networks is a regression with one input and eight tanh units. Its
posterior has several modes: a chain of an exact sampler stays in the one it has found. Here eight chains of NUTS are compared
in function space, their modes are described, and stacking weighs the chains by how well they predict.
"""

import os
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr

import bnnzoo as bz

warnings.simplefilter("ignore", bz.FitWarning)  # the chains disagree, which is the subject of this page
warnings.simplefilter("ignore", bz.diagnostics.UnreliableLooWarning)

# %%
# Neal's file `rdata` is read where ``BNNZOO_DATA`` is the folder that has it; otherwise data are simulated by his recipe. The
# first hundred rows are for training, the next thousand for the test.

path = Path(os.environ.get("BNNZOO_DATA", "")) / "fbm" / "rdata"
if path.exists():
    x, y = np.loadtxt(path).T
else:
    rng = np.random.default_rng(0)
    x = rng.normal(size=1100)
    y = 0.3 + 0.4 * x + 0.5 * np.sin(2.7 * x) + 1.1 / (1 + x**2) + 0.1 * rng.normal(size=1100)
x, x_test, y, y_test = x[:100, None], x[100:, None], y[:100], y[100:]

# %%
# The prior has a scale for each group of weights, whose precision has a vague gamma distribution.

scale = bz.priors.layerwise(bz.priors.gamma_precision(0.25, 0.05))
output = bz.priors.layerwise(bz.priors.gamma_precision(0.25, 0.05 / np.sqrt(8)))
prior = bz.priors.by_parameter({"0.*": scale, "2.weight": output, "2.bias": bz.priors.normal(100.0)})
noise = bz.likelihoods.gaussian(bz.priors.gamma_precision(0.25, 0.05))
model = bz.models.supervised(bz.models.mlp(1, (8,)), prior, noise)

method = bz.NUTS(num_chains=8, num_warmup=1000, num_draws=1000, target_accept=0.95)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.NUTS(num_chains=8, num_warmup=60, num_draws=40, max_tree_depth=5)
# sphinx_gallery_end_ignore
posterior = bz.fit(model, method, x, y, seed=0, dtype=torch.float64, progress=False)

# %%
# R-hat of the function along x is above 1.01 everywhere, a little in the range of most observations and by far at the edges: the
# chains agree on what the data determine, and not on what follows from the mode. The scale of the output weights tells the modes
# apart.

grid = np.linspace(-3.0, 3.0, 121)[:, None]
tree = bz.predict(posterior, grid, num_draws=None)
r_hat = bz.diagnostics.function_space(tree)["rhat"]
print(
    f"largest R-hat of the function: {float(r_hat.max()):.2f}; above 1.01 at {int((r_hat > 1.01).sum())} of 121 inputs"
)

train = bz.posterior_predictive(posterior, x, y)
output_scale = train["posterior"]["net.2.weight.scale"].median("draw").values
is_large = output_scale > 8
for name, chains in {"small": ~is_large, "large": is_large}.items():
    if chains.any():
        right = float(tree["conditional"]["mean"].isel(chain=chains, obs_id=-1).mean())
        print(
            f"{name} output weights: chains {np.flatnonzero(chains)}, scale {output_scale[chains].round(1)}, f(3) {right:.2f}"
        )

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
means = tree["conditional"]["mean"].mean("draw").values
for chain in range(len(means)):
    axes[0].plot(grid[:, 0], means[chain], color="C1" if is_large[chain] else "C0", alpha=0.8)
axes[0].plot([], [], "C0", label="small output weights")
axes[0].plot([], [], "C1", label="large output weights")
axes[0].plot(x[:, 0], y, "k.", markersize=3, label="data")
axes[0].set(xlabel="x", ylabel="mean of f(x) in each chain", ylim=(-6, 4))
axes[0].legend(fontsize="small")
axes[1].plot(grid[:, 0], r_hat)
axes[1].axhline(1.01, color="gray", linestyle="--")
axes[1].set(xlabel="x", ylabel="R-hat of f(x)")

# %%
# There are two kinds of solutions. With small output weights, the hidden units saturate within the range of the data, and the
# function levels off beyond it. With large ones, the function is a sum of large parts that nearly cancel, and it goes on as
# steeply as it came. Scores on the test data, beside those that Neal documents for chains that visit both modes (0.830 ± 0.022
# and 0.0187 ± 0.0034):


def scores(predictions: xr.DataTree) -> tuple[float, float]:
    """Return the mean log score and the mean squared error of the predictive mean."""
    mean = predictions["conditional"]["mean"].mean(("chain", "draw")).values
    return -float(bz.calibration.nll(predictions).mean()), float(((mean - y_test) ** 2).mean())


weights = bz.validation.stack_chains(train).attrs
parts = {f"chain {i}": weights[f"weight_chain {i}"] for i in range(method.num_chains)}
test = bz.predict(posterior, x_test, y_test, num_draws=None)
by_chain = {f"chain {i}": test.isel(chain=[i]) for i in range(method.num_chains)}
stacked = bz.validation.stack(by_chain, parts)
for name, predictions in {**by_chain, "pooled": test, "stacked": stacked}.items():
    log_score, error = scores(predictions)
    weight = f", stacking weight {parts[name]:.2f}" if name in parts else ""
    print(f"{name:8} log score {log_score:.3f}, squared error {error:.4f}{weight}")

# %%
# The predictive mean and quantiles at -3, 0 and 3. Neal's are -2.10 (-2.61 to -1.62), 1.38 (1.25 to 1.52) and 2.96 (2.61 to
# 3.31).

edges = {f"chain {i}": tree.isel(chain=[i], obs_id=[0, 60, 120]) for i in range(method.num_chains)}
for name, predictions in {
    "pooled": tree.isel(obs_id=[0, 60, 120]),
    "stacked": bz.validation.stack(edges, parts),
}.items():
    drawn = predictions["predictions"]["y"]
    low, high = drawn.quantile([0.1, 0.9], ("chain", "draw")).values
    middle = drawn.mean(("chain", "draw")).values
    print(name, ", ".join(f"{m:.2f} ({a:.2f} to {b:.2f})" for m, a, b in zip(middle, low, high, strict=True)))

# %%
# Pooled, the chains score as documented. But they weigh the modes by how many chains started near each, and their interval at 3
# is wider than Neal's. Stacking maximises the leave-one-out score of the training data, and here it does not help: it gives all
# weight to two chains that complement each other within the range of the data, and both are poor beyond it, so that the
# squared error on the test data grows. Neither finds the mass of the modes. R-hat stays what it was: the posterior has not been
# explored, and longer or tempered chains are needed.

plt.show()
