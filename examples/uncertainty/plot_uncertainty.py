"""
Aleatoric and epistemic uncertainty
===================================

Aleatoric uncertainty is noise, which more data do not remove; epistemic uncertainty is about the function, and they
do. A network with two outputs, location and scale, is fitted by NUTS to data with a gap, and its predictive variance
is split into both parts.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# Heteroscedastic data: the noise increases with x, and there are no observations between 0 and 1.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-2, 0, 100), rng.uniform(1, 2, 60)])[:, None]
y = np.sin(2 * x[:, 0]) + (0.05 + 0.1 * (x[:, 0] + 2)) * rng.normal(size=len(x))

model = bz.models.supervised(
    bz.models.mlp(1, hidden=(20,), out_features=2),
    prior=bz.priors.fan_in(2.0),
    likelihood=bz.likelihoods.heteroscedastic_gaussian(),
)
method = bz.NUTS(num_warmup=400, num_draws=250)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.MAP(num_members=3, num_steps=50, polish_steps=0)
# sphinx_gallery_end_ignore
posterior = bz.fit(model, method, x, y, seed=0, progress=False)

# %%
# Inner band: the mean plus or minus two epistemic standard deviations. Outer band: two standard deviations of the
# total.

grid = np.linspace(-2.5, 2.5, 101)[:, None]
tree = bz.predict(posterior, grid)
bz.plots.plot_function(tree, grid, observed=(x, y), visuals={"observed": {"alpha": 0.4}})

# %%
# The standard deviations: epistemic uncertainty dominates in the gap, aleatoric uncertainty on the right.

parts = bz.uncertainty.decompose(tree)
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for name in ("total", "aleatoric", "epistemic"):
    axis.plot(grid[:, 0], parts[name] ** 0.5, label=name)
axis.set(xlabel="x", ylabel="standard deviation of y", yscale="log")
axis.legend()
print("rank correlation of aleatoric and epistemic:", float(bz.uncertainty.rank_correlation(parts).round(2)))

# %%
# Are the intervals calibrated? Coverage of new observations, in the range of the data.

x_new = np.concatenate([rng.uniform(-2, 0, 200), rng.uniform(1, 2, 120)])[:, None]
y_new = np.sin(2 * x_new[:, 0]) + (0.05 + 0.1 * (x_new[:, 0] + 2)) * rng.normal(size=len(x_new))
bz.plots.plot_coverage(bz.predict(posterior, x_new, y_new))
plt.show()
