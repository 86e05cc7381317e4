"""
Calibration, and its repair
===========================

A classifier fitted by its mode alone is too sure. A temperature, fitted on rows that were held out, repairs that; conformal
prediction gives sets of classes that hold the right one as often as they say.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import bnnzoo as bz

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# Few training rows and a wide prior, so that there is something to repair.

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.data))
x, y = digits.data[order] / 16, digits.target[order]
train, held_out, new = slice(0, 150), slice(150, 650), slice(650, None)

model = bz.models.supervised(bz.models.mlp(64, (30,), 10), bz.priors.normal(3.0), bz.likelihoods.categorical())
method = bz.MAP(num_steps=60 if smoke else 1500, polish_steps=0)
posterior = bz.fit(model, method, x[train], y[train], seed=0, progress=False)
held_out_tree = bz.predict(posterior, x[held_out], y[held_out])
tree = bz.predict(posterior, x[new], y[new])

# %%
# Temperature scaling.

scaling = bz.calibration.Temperature.fit(held_out_tree)
repaired = scaling.transform(tree)
print(f"temperature {scaling.temperature:.2f}")
for name, one in {"as fitted": tree, "repaired": repaired}.items():
    error, score = bz.calibration.ece(one, debiased=True), bz.calibration.nll_of_probs(one).mean()
    print(f"{name:10} expected calibration error {float(error):.3f}, log score {float(score):.3f}")

bz.plots.plot_reliability({"as fitted": tree, "repaired": repaired})

# %%
# Sets of classes at level 0.95: on average over new rows, as many hold the right class.

labels = tree["predictions_observed_data"]["y"].values
for name, kind in {"LAC": bz.calibration.LeastAmbiguousSets, "APS": bz.calibration.AdaptiveSets}.items():
    sets = kind.fit(held_out_tree, level=0.95).sets(tree).values
    print(
        f"{name}: coverage {sets[np.arange(len(labels)), labels].mean():.3f}, classes in a set {sets.sum(1).mean():.2f}"
    )

# %%
# What is gained if the most uncertain digits are left to somebody else.

bz.plots.plot_risk_coverage(tree)
plt.show()
