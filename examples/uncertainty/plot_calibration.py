"""
Temperature scaling and conformal prediction
============================================

A classifier fitted by MAP alone is overconfident. Temperature scaling on held-out observations recalibrates it.
Conformal prediction gives sets of classes with a chosen coverage.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import bnnzoo as bz

# %%
# Few training observations and a wide prior, so that the classifier is overconfident.

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.data))
x, y = digits.data[order] / 16, digits.target[order]
train, held_out, new = slice(0, 150), slice(150, 650), slice(650, None)

model = bz.models.supervised(bz.models.mlp(64, (30,), 10), bz.priors.normal(10.0), bz.likelihoods.categorical())
method = bz.MAP(num_steps=1500, polish_steps=0)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.MAP(num_steps=60, polish_steps=0)
# sphinx_gallery_end_ignore
posterior = bz.fit(model, method, x[train], y[train], seed=0, progress=False)
held_out_tree = bz.predict(posterior, x[held_out], y[held_out])
tree = bz.predict(posterior, x[new], y[new])

# %%
# Temperature scaling. The reliability curve is closer to the diagonal after recalibration.

scaling = bz.calibration.Temperature.fit(held_out_tree)
recalibrated = scaling.transform(tree)
print(f"temperature {scaling.temperature:.2f}")
for name, one in {"as fitted": tree, "recalibrated": recalibrated}.items():
    error, score = bz.calibration.ece(one, debiased=True), bz.calibration.nll_of_probs(one).mean()
    print(f"{name:12} expected calibration error {float(error):.3f}, log score {float(score):.3f}")

bz.plots.plot_reliability({"as fitted": tree, "recalibrated": recalibrated})

# %%
# Conformal sets at level 0.95: this is the average fraction of sets that contain the true class.

labels = tree["predictions_observed_data"]["y"].values
for name, kind in {"LAC": bz.calibration.LeastAmbiguousSets, "APS": bz.calibration.AdaptiveSets}.items():
    sets = kind.fit(held_out_tree, level=0.95).sets(tree).values
    print(
        f"{name}: coverage {sets[np.arange(len(labels)), labels].mean():.3f}, classes in a set {sets.sum(1).mean():.2f}"
    )

# %%
# Selective prediction: the error rate if the most uncertain digits are rejected.

bz.plots.plot_risk_coverage(tree)
plt.show()
