"""
In-between uncertainty: mean-field VI, Laplace and NUTS
=======================================================

There are two clusters of observations and nothing between them. How uncertain is a network in the gap? The exact
posterior of a wide network is very uncertain there. A Gaussian with independent components cannot be: to fit both
clusters it has to be certain about each weight, and is then certain in the gap as well. A Laplace approximation keeps
the correlations between weights, and with predictions linearised at the mode its uncertainty grows in the gap.

The setup is that of Foong, Burt, Li and Turner (2020), On the expressiveness of approximate inference in Bayesian
neural networks: two inputs, 50 ReLU units, predictions along the line through both clusters.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

# %%
# Forty observations in two clusters, with noise 0.1.

rng = np.random.default_rng(0)
x = np.concatenate([rng.normal(-1.0, 0.1, (20, 2)), rng.normal(1.0, 0.1, (20, 2))])
y = np.sin(2.5 * x.mean(1)) + 0.1 * rng.normal(size=40)
place = np.linspace(-2.0, 2.0, 101)  # on the line through (-1, -1) and (1, 1)
grid = np.stack([place, place], axis=1)

# %%
# One hidden layer, and a prior under which functions have a standard deviation of about four.

net = bz.models.mlp(2, hidden=(50,), activation="relu")
model = bz.models.supervised(net, bz.priors.fan_in(4.0), bz.likelihoods.gaussian(scale=0.1))

methods = {
    "NUTS": bz.NUTS(num_chains=2, num_warmup=200, num_draws=200, max_tree_depth=9),
    "mean-field VI": bz.MeanFieldVI(num_steps=3000, num_averaged=500),
    "Laplace, linearised": bz.Laplace(bz.MAP(num_members=4, num_steps=500, polish_steps=1000)),
}
num_draws = 200
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_draws = 10
    methods["NUTS"] = bz.NUTS(num_chains=2, num_warmup=5, num_draws=10, max_tree_depth=3)
    methods["mean-field VI"] = bz.MeanFieldVI(num_steps=100, num_averaged=20)
# sphinx_gallery_end_ignore

# %%
# The conditional mean of a draw is the function of the network. Its standard deviation over draws is the epistemic
# uncertainty.

near, gap = abs(place) < 0.2, abs(place) < 0.57
spread = {}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharex=True, sharey=True, constrained_layout=True)
for axis, (name, method) in zip(axes, methods.items(), strict=True):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The mode was not reached")  # ReLU units make kinks in the density
        # in double precision, since the curvature of a network is ill-conditioned
        posterior = bz.fit(model, method, x, y, seed=0, dtype=torch.float64, progress=False)
    function = bz.predict(posterior, grid, num_draws=num_draws)["conditional"]["mean"]
    mean, sd = (function.mean(("chain", "draw")).to_numpy(), function.std(("chain", "draw")).to_numpy())
    spread[name] = sd
    axis.fill_between(place, mean - 2 * sd, mean + 2 * sd, alpha=0.3, linewidth=0)
    axis.plot(place, mean)
    axis.plot(x.mean(1), y, "k.", markersize=3)
    axis.set(title=f"{name}\nsd {sd[near].mean():.2f} in the middle", xlabel="place on the line", ylim=(-6, 6))
axes[0].set_ylabel("f, mean and two sds")
plt.show()

# %%
# Standard deviations relative to those of NUTS, in the middle of the gap and over most of it.

for name, sd in spread.items():
    middle, wide = (sd[part].mean() / spread["NUTS"][part].mean() for part in (near, gap))
    print(f"{name:22s} {middle:5.2f} for |place| < 0.2, {wide:5.2f} for |place| < 0.57")

# %%
# Mean-field VI has a small fraction of the uncertainty of NUTS. More steps or particles do not help, because the
# family is too small. The Laplace approximation uses one mode of many, but keeps the correlations between weights,
# and in the middle of the gap it is close to NUTS. Towards the clusters it is too wide: a linearised unit jumps at
# its kink, where the unit itself only bends.
