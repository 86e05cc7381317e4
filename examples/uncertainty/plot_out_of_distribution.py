"""
Out-of-distribution detection on digits
=======================================

Networks are fitted to the digits 0 to 6. How well do their uncertainties detect errors among these digits, and how
well do they detect the out-of-distribution digits 7, 8 and 9? For an ensemble we use predictive entropy and mutual
information, for a single network predictive entropy and scores of its features.
"""

import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from sklearn.datasets import load_digits

import bnnzoo as bz
from bnnzoo.predictive import features

digits = load_digits()
x, y = digits.data / 16, digits.target
known = np.random.default_rng(0).permutation(np.flatnonzero(y < 7))
train, test = known[:500], known[500:]
unknown = y >= 7

prior, likelihood = bz.priors.fan_in(1.4), bz.likelihoods.categorical()
method = bz.MAP(num_steps=400, learning_rate=0.01, polish_steps=0)
num_blocks = 2
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.MAP(num_steps=20, learning_rate=0.01, polish_steps=0)
    num_blocks = 1
# sphinx_gallery_end_ignore

# %%
# A deep ensemble: five modes of the posterior of one network.

model = bz.models.supervised(bz.models.mlp(64, (50,), 7, activation="relu"), prior, likelihood)
ensemble = bz.fit(model, replace(method, num_members=5), x[train], y[train], progress=False)
inside = bz.predict(ensemble, x[test], y[test])
outside = bz.predict(ensemble, x[unknown])

# %%
# The digits about which the ensemble is most uncertain, with their predicted class, the right one where it differs, and their
# predictive entropy.

bz.plots.plot_images(inside, x[test].reshape(-1, 8, 8), num_images=12)

wrong = bz.calibration.misclassified(inside)
scores = {
    "ensemble, entropy": [bz.uncertainty.predictive_entropy(tree) for tree in (inside, outside)],
    "ensemble, mutual information": [bz.uncertainty.mutual_information(tree) for tree in (inside, outside)],
}
errors = dict.fromkeys(scores, wrong)

# %%
# A single residual network, and the features that enter its last layer. Its prior is wide: under a narrow prior, the
# mode shrinks weights that no known class needs, and the features no longer reveal out-of-distribution inputs.

net = bz.models.residual_mlp(64, width=50, num_blocks=num_blocks, out_features=7)
wide = bz.models.supervised(net, bz.priors.fan_in(5.0), likelihood)
single = bz.fit(wide, method, x[train], y[train], progress=False)
seen, seen_inside, seen_outside = (features(single, rows, at_mean=True) for rows in (x[train], x[test], x[unknown]))
labels = xr.DataArray(y[train], dims="obs_id")
density = bz.ood.GaussianDensity.fit(seen, labels)
distance = bz.ood.Mahalanobis.fit(seen, labels)
nearest = bz.ood.NearestFeatures.fit(seen)
predicted, others = bz.predict(single, x[test], y[test]), bz.predict(single, x[unknown])
of_network = {
    "network, entropy": [bz.uncertainty.predictive_entropy(tree) for tree in (predicted, others)],
    "features, density (DDU)": [density.score(seen_inside), density.score(seen_outside)],
    "features, Mahalanobis": [distance.score(seen_inside), distance.score(seen_outside)],
    "features, neighbours": [nearest.score(seen_inside), nearest.score(seen_outside)],
}
scores |= of_network
errors |= dict.fromkeys(of_network, bz.calibration.misclassified(predicted))

# %%
# Areas under the ROC curve, with bootstrap intervals. A score may be good at one task and poor at the other.


def area(score: xr.DataArray, target: xr.DataArray) -> np.ndarray:
    """Return the area and the ends of its interval."""
    return bz.calibration.auroc(score, target, num_resamples=200).to_array().to_numpy()


of_errors = np.array([area(inside, errors[name]) for name, (inside, _) in scores.items()])
of_unknown = np.array([area(*bz.calibration.versus(*pair)) for pair in scores.values()])

figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for label, shift, (value, low, high) in (("errors", -0.12, of_errors.T), ("unknown digits", 0.12, of_unknown.T)):
    interval = np.maximum([value - low, high - value], 0.0)
    axis.errorbar(value, np.arange(len(scores)) + shift, xerr=interval, fmt="o", label=label)
    print(label)
    for name, *numbers in zip(scores, value, low, high, strict=True):
        print("  {:28} {:.3f} ({:.3f}, {:.3f})".format(name, *numbers))
axis.axvline(0.5, color="gray", linewidth=0.8)
axis.set(yticks=range(len(scores)), yticklabels=scores, xlabel="area under the ROC curve (chance: 0.5)")
axis.invert_yaxis()
figure.legend(loc="outside upper center", ncols=2)
plt.show()
