"""
Active learning: BALD, uncertainty sampling and density
=======================================================

Which of 1,000 unlabelled digits should be labelled next? Uncertainty sampling chooses those with the highest predictive
entropy, BALD those on which the members of an ensemble disagree, and a density-weighted entropy those that are uncertain and
resemble many others. They are compared with random labelling, in ten runs with common starting sets.
"""

import sys
from collections.abc import Callable
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from sklearn.datasets import load_digits

import bnnzoo as bz

num_seeds, num_rounds, batch_size = 10, 6, 15
method = bz.MAP(num_members=10, num_steps=100, learning_rate=0.05, polish_steps=0)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_seeds, num_rounds = 1, 2
    method = replace(method, num_steps=20)
# sphinx_gallery_end_ignore
# A wide prior: with so few labels, the mode under a narrow prior has weights near zero.
model = bz.models.supervised(
    bz.models.mlp(64, (40,), 10, activation="relu"), bz.priors.fan_in(8.0), bz.likelihoods.categorical()
)

type Acquisition = Callable[[xr.DataTree, np.ndarray, np.random.Generator], xr.DataArray]

# %%
# One run: fit, score the pool, label fifteen digits, and repeat.


def learn(seed: int, acquire: Acquisition) -> list[float]:
    """Return the accuracy on test digits after each round."""
    digits = load_digits()
    x, y = digits.data / 16, digits.target
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    pool, test = order[:1000], order[1000:]
    labelled, accuracies = list(pool[:20]), []
    for _ in range(num_rounds):
        posterior = bz.fit(model, method, x[labelled], y[labelled], seed=seed, progress=False)
        wrong = bz.calibration.misclassified(bz.predict(posterior, x[test], y[test]))
        accuracies.append(1 - float(wrong.mean()))
        rest = np.setdiff1d(pool, labelled)
        score = acquire(bz.predict(posterior, x[rest]), x[rest], rng)
        labelled += list(rest[bz.acquisition.select(score, batch_size)])
    return accuracies


def at_random(tree: xr.DataTree, x: np.ndarray, rng: np.random.Generator) -> xr.DataArray:
    """Return random scores."""
    score = bz.uncertainty.predictive_entropy(tree)
    return score.copy(data=rng.random(score.size))


def by_bald(tree: xr.DataTree, x: np.ndarray, rng: np.random.Generator) -> xr.DataArray:
    """Return the mutual information between label and parameters."""
    return bz.acquisition.bald(tree)


def by_entropy(tree: xr.DataTree, x: np.ndarray, rng: np.random.Generator) -> xr.DataArray:
    """Return the predictive entropy: uncertainty sampling."""
    return bz.uncertainty.predictive_entropy(tree)


def by_density(tree: xr.DataTree, x: np.ndarray, rng: np.random.Generator) -> xr.DataArray:
    """Return the predictive entropy times the mean cosine similarity with the rest of the pool (information density)."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return bz.uncertainty.predictive_entropy(tree) * (unit @ unit.mean(0))


ACQUISITIONS = {"BALD": by_bald, "entropy": by_entropy, "density-weighted": by_density, "random": at_random}
results = {
    name: np.array([learn(seed, acquire) for seed in range(num_seeds)]) for name, acquire in ACQUISITIONS.items()
}

# %%
# Accuracy against the number of labels: mean over runs, plus or minus two standard errors.

labels = 20 + batch_size * np.arange(num_rounds)
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, accuracy in results.items():
    mean, error = accuracy.mean(0), accuracy.std(0) / np.sqrt(num_seeds)
    axis.plot(labels, mean, label=name)
    axis.fill_between(labels, mean - 2 * error, mean + 2 * error, alpha=0.3)
axis.set(xlabel="labels", ylabel="accuracy on test digits")
axis.legend()

for name in list(results)[:-1]:
    for count, each in zip(labels, (results[name] - results["random"]).T, strict=True):
        error = each.std() / np.sqrt(num_seeds)
        print(f"{count:4} labels: {name} better than random by {each.mean():+.3f} ± {error:.3f}")
plt.show()
