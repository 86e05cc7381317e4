"""
Aleatoric and epistemic uncertainty
===================================

Noise that depends on the input cannot be learned away; what is not known about the function can. A network with two outputs,
location and scale, is fitted by NUTS to data with a gap, and its predictive variance is split into both.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# Data whose noise grows to the right, with nothing observed between 0 and 1.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-2, 0, 100), rng.uniform(1, 2, 60)])[:, None]
y = np.sin(2 * x[:, 0]) + (0.05 + 0.1 * (x[:, 0] + 2)) * rng.normal(size=len(x))

model = bz.models.supervised(
    bz.models.mlp(1, hidden=(20,), out_features=2),
    prior=bz.priors.fan_in(2.0),
    likelihood=bz.likelihoods.heteroscedastic_gaussian(),
)
method = bz.MAP(num_members=3, num_steps=50, polish_steps=0) if smoke else bz.NUTS(num_warmup=400, num_draws=250)
posterior = bz.fit(model, method, x, y, seed=0, progress=False)

# %%
# Inner band: two epistemic standard deviations about the mean. Outer band: two of all uncertainty together.

grid = np.linspace(-2.5, 2.5, 101)[:, None]
tree = bz.predict(posterior, grid)
bz.plots.plot_function(tree, grid, observed=(x, y), visuals={"observed": {"alpha": 0.4}})

# %%
# The split in numbers: the gap is epistemic, the right-hand side aleatoric.

parts = bz.uncertainty.decompose(tree)
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for name in ("total", "aleatoric", "epistemic"):
    axis.plot(grid[:, 0], parts[name] ** 0.5, label=name)
axis.set(xlabel="x", ylabel="standard deviation of y", yscale="log")
axis.legend()
print("rank correlation of the two parts:", float(bz.uncertainty.rank_correlation(parts).round(2)))

# %%
# Are the intervals as wide as they should be? Coverage of new observations from where there are data.

x_new = np.concatenate([rng.uniform(-2, 0, 200), rng.uniform(1, 2, 120)])[:, None]
y_new = np.sin(2 * x_new[:, 0]) + (0.05 + 0.1 * (x_new[:, 0] + 2)) * rng.normal(size=len(x_new))
bz.plots.plot_coverage(bz.predict(posterior, x_new, y_new))
plt.show()
