"""
Deep ensembles on a cubic
=========================

Forty observations of :math:`y = x^3 + \\epsilon` with noise of standard deviation 3 on (-4, 4), the example with which deep
ensembles were introduced, at the settings of a practical course: six networks with a mean and a scale as outputs, 600 steps of
Adam on all rows at a learning rate of 0.08, with and without adversarial training. How sure is the ensemble at the edge of the
data and beyond, and has every member been trained at all?
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

# %%
# The data, in standard units: losses below are reported in the units of y.

random = np.random.default_rng(0)
x = random.uniform(-4, 4, (40, 1))
y = x[:, 0] ** 3 + 3 * random.normal(size=40)
y_scale = y.std()
grid = np.linspace(-6, 6, 121)[:, None]
noise_alone = 0.5 * np.log(2 * np.pi * 3**2) + 0.5
constant = 0.5 * np.log(2 * np.pi * y.var()) + 0.5
print(f"loss of the noise alone {noise_alone:.2f}, of a constant Gaussian {constant:.2f}")

# %%
# A network 1-10-6-30-2, whose second output becomes a scale by softplus, under a Gaussian and under a Laplace likelihood. Members
# of the course were trained without a prior; here it is weak.

methods = {
    "plain": bz.DeepEnsemble(6, num_steps=600, learning_rate=0.08, schedule="constant"),
    "adversarial": bz.DeepEnsemble(
        6, num_steps=600, learning_rate=0.08, schedule="constant", adversarial=bz.inference.FGSM(0.08)
    ),
    "converged": bz.MAP(6, num_steps=3000),
    "NUTS": bz.NUTS(num_chains=4, num_warmup=500, num_draws=250, max_tree_depth=8),
}
sigmas = {"Gaussian": bz.likelihoods.heteroscedastic_gaussian(), "Laplace": bz.likelihoods.heteroscedastic_laplace()}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods = {
        "plain": bz.DeepEnsemble(2, num_steps=20, learning_rate=0.08, schedule="constant"),
        "adversarial": bz.DeepEnsemble(2, num_steps=20, adversarial=bz.inference.FGSM(0.08)),
    }
# sphinx_gallery_end_ignore
net = torch.nn.Sequential(
    *(torch.nn.Linear(1, 10), torch.nn.ReLU(), torch.nn.Linear(10, 6), torch.nn.ReLU()),
    *(torch.nn.Linear(6, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2)),
)

# %%
# For each fit: the loss of each member on the training data (minus its mean log density, in units of y), and the predictive
# standard deviation at the edge of the data (x = 4) and beyond.

trees = {}
for likelihood, method in [(one, other) for one in sigmas for other in methods if one == "Gaussian" or other != "NUTS"]:
    model = bz.models.supervised(net, bz.priors.fan_in(3.0), sigmas[likelihood])
    posterior = bz.fit(model, methods[method], x / 4, y / y_scale, seed=1, dtype=torch.float64)
    train = bz.posterior_predictive(posterior, x / 4, y / y_scale)
    trees[likelihood, method] = tree = bz.predict(posterior, grid / 4)
    losses = (np.log(y_scale) - train["log_likelihood"]["y"].mean("obs_id")).values.flatten()
    parts = tree["conditional"]
    total = (parts["variance"].mean(("chain", "draw")) + parts["mean"].var(("chain", "draw"))) ** 0.5 * y_scale
    sds = {edge: float(total[int(np.argmin(np.abs(grid[:, 0] - edge)))]) for edge in (4, 5, 6)}
    shown = " ".join(f"{loss:.2f}" for loss in losses[:6])
    print(
        f"{likelihood:8} {method:11} loss {shown}  failed {int((losses > constant - 0.05).sum())}  "
        + "  ".join(f"sd({edge})={sd:.1f}" for edge, sd in sds.items())
    )

# %%
# The fits with Gaussian noise: each line is a member's mean, the band is two predictive standard deviations.

shown_methods = list(methods)
figure, axes = plt.subplots(
    1, len(shown_methods), figsize=(3.2 * len(shown_methods), 3.2), sharey=True, layout="constrained"
)
for axis, name in zip(axes, shown_methods, strict=True):
    parts = trees["Gaussian", name]["conditional"]
    mean = parts["mean"].mean(("chain", "draw")).values * y_scale
    total = (parts["variance"].mean(("chain", "draw")) + parts["mean"].var(("chain", "draw"))).values ** 0.5 * y_scale
    axis.fill_between(grid[:, 0], mean - 2 * total, mean + 2 * total, alpha=0.3)
    axis.plot(grid[:, 0], parts["mean"].stack(each=("chain", "draw")).values[:, :6] * y_scale, "C0", linewidth=0.6)
    axis.plot(grid[:, 0], grid[:, 0] ** 3, "k--", linewidth=0.8)
    axis.plot(x[:, 0], y, "k.", markersize=3)
    axis.set(title=name, xlabel="x", ylim=(-300, 300))
axes[0].set_ylabel("y")

# %%
# At this learning rate five of the six members of the Gaussian ensemble have failed, and two of the six with adversarial
# training: their losses are no better than that of a constant Gaussian. Their standard deviations swamp the mixture's. With the
# Laplace likelihood none failed. Converged members have a lower loss than the noise alone: they have fitted the noise, and are
# far too sure at the edge. Of the 1,000 draws of NUTS 250, as many as one of its four chains has, have failed as well:
# its standard deviations are no reference here.

plt.show()
