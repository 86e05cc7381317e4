"""
A sure digit, an ambiguous digit and one never seen
===================================================

An ensemble is fitted to the digits 0 to 8. Then it is shown a 7 it is sure of, an image halfway between a 7 and a 1, and a 9,
a class it has never seen. How do its members vote, and what do total, aleatoric and epistemic uncertainty say?
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import bnnzoo as bz

method = bz.DeepEnsemble(20, num_steps=400, learning_rate=0.01)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.DeepEnsemble(3, num_steps=30)
# sphinx_gallery_end_ignore
digits = load_digits()
x, y = digits.data / 16, digits.target
train, test = np.arange(1000), np.arange(1000, len(x))
train = train[y[train] < 9]
model = bz.models.supervised(
    bz.models.mlp(64, (40,), 9, activation="relu"), bz.priors.fan_in(4.0), bz.likelihoods.categorical()
)
posterior = bz.fit(model, method, x[train], y[train], seed=0, progress=False)

# %%
# The sure 7 is the test image with the lowest predictive entropy; the ambiguous image is its average with the surest 1; the 9
# is the one with the highest mutual information.

inside = test[y[test] < 9]
entropy = bz.uncertainty.predictive_entropy(bz.predict(posterior, x[inside], num_draws=None)).values
seven, one = (inside[np.where(y[inside] == digit, entropy, np.inf).argmin()] for digit in (7, 1))
nines = test[y[test] == 9]
information = bz.uncertainty.mutual_information(bz.predict(posterior, x[nines], num_draws=None)).values
images = np.stack([x[seven], (x[seven] + x[one]) / 2, x[nines[information.argmax()]]])
tree = bz.predict(posterior, images, num_draws=None)
parts = bz.uncertainty.decompose(tree)
names = ("a 7", "between 7 and 1", "a 9, never seen")
for row, name in enumerate(names):
    print(f"{name:16}", {part: round(float(parts[part][row]), 3) for part in ("total", "aleatoric", "epistemic")})

# %%
# Each line is a member. On the 7 they all agree. On the ambiguous image nearly all divide their probability between 7 and 1, in
# different proportions: the uncertainty is almost wholly aleatoric. On the 9 they prefer different digits (0, 5, 7 or 8), few of
# them strongly. Epistemic uncertainty is about six times that of the ambiguous image, and still less than half of the aleatoric:
# a member that hesitates between several wrong classes counts as aleatoric, for whatever reason.

figure, axes = plt.subplots(2, 3, figsize=(9, 4.6), layout="constrained")
probs = tree["conditional"]["probs"].values[0]
for row, name in enumerate(names):
    axes[0, row].imshow(images[row].reshape(8, 8), cmap="gray_r")
    axes[0, row].set(title=name, xticks=[], yticks=[])
    axes[1, row].plot(range(9), probs[:, row].T, "o-", color="C0", alpha=0.3, markersize=3)
    axes[1, row].set(xlabel="class", ylim=(0, 1), xticks=range(9))
axes[1, 0].set_ylabel("probability")

# %%
# Over all test images: how often does each measure rank a 9 above a known digit? In 91% of pairs, by each of the three: their
# 95% intervals overlap almost entirely. Epistemic uncertainty is no better here at finding a new class than the other two.

known = bz.uncertainty.decompose(bz.predict(posterior, x[inside], num_draws=None))
unknown = bz.uncertainty.decompose(bz.predict(posterior, x[nines], num_draws=None))
for part in ("total", "aleatoric", "epistemic"):
    score, is_nine = bz.calibration.versus(known[part], unknown[part])
    print(part, {k: round(float(v), 3) for k, v in bz.calibration.auroc(score, is_nine).items()})
plt.show()
