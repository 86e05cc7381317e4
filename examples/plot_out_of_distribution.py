"""
Digits nobody has shown
=======================

Networks are fitted to the digits 0 to 6. How well do their uncertainties tell wrong from right among these, and how well do
they find the digits 7, 8 and 9? Methods that make draws are judged by the entropy of their average, and densities of
features by how improbable the features are.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from sklearn.datasets import load_digits

import bnnzoo as bz
from bnnzoo.predictive import features

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

num_seeds = 1 if smoke else 5
steps = 20 if smoke else 300
prior, likelihood = bz.priors.fan_in(1.4), bz.likelihoods.categorical()


def split(seed: int) -> tuple[np.ndarray, ...]:
    """Return inputs and labels of known digits for training and test, and inputs of the others."""
    digits = load_digits()
    x, y = digits.data / 16, digits.target
    known = np.random.default_rng(seed).permutation(np.flatnonzero(y < 7))
    train, test = known[:300], known[300:]
    return x[train], y[train], x[test], y[test], x[y >= 7]


# %%
# Every row of the table: areas under the ROC for errors and for unknown digits.


def areas(inside: xr.DataArray, outside: xr.DataArray, wrong: xr.DataArray) -> tuple[float, float]:
    """Return both areas of one uncertainty."""
    score, target = bz.calibration.versus(inside, outside)
    few = {"num_resamples": 1}
    errors = bz.calibration.auroc(inside, wrong, **few)["value"] if wrong.any() else np.nan
    return float(errors), float(bz.calibration.auroc(score, target, **few)["value"])


def run(seed: int) -> dict[str, tuple[float, float]]:
    """Return the areas of every method for one split."""
    x, y, x_test, y_test, x_other = split(seed)
    table = {}
    plain = bz.models.supervised(bz.models.mlp(64, (40,), 7, activation="relu"), prior, likelihood)
    one = bz.MAP(num_steps=steps, learning_rate=0.01, polish_steps=0)
    methods = {
        "MAP": one,
        "ensemble of 5": bz.MAP(num_members=5, num_steps=steps, learning_rate=0.01, polish_steps=0),
        "mean-field VI": bz.MeanFieldVI(num_steps=500 if smoke else 2000, num_averaged=100),
    }
    for name, method in methods.items():
        posterior = bz.fit(plain, method, x, y, seed=seed, progress=False)
        draws = 100 if name == "mean-field VI" else None
        inside = bz.predict(posterior, x_test, y_test, num_draws=draws)
        outside = bz.predict(posterior, x_other, num_draws=draws)
        entropy = [bz.uncertainty.predictive_entropy(tree) for tree in (inside, outside)]
        table[name] = areas(*entropy, bz.calibration.misclassified(inside))
    for name, bound in {"DDU": 0.95, "DDU, no spectral bound": None}.items():
        net = bz.models.residual_mlp(64, 40, 2, 7, bound=bound)
        model = bz.models.supervised(net, prior, likelihood)
        posterior = bz.fit(model, one, x, y, seed=seed, progress=False)
        wrong = bz.calibration.misclassified(bz.predict(posterior, x_test, y_test))
        train, inside, outside = (features(posterior, rows, at_mean=True) for rows in (x, x_test, x_other))
        labels = train[:, 0].copy(data=y)
        density = bz.ood.GaussianDensity.fit(train, labels)
        table[name] = areas(density.score(inside), density.score(outside), wrong)
        if bound is not None:
            distance = bz.ood.Mahalanobis.fit(train, labels)
            table["Mahalanobis"] = areas(distance.score(inside), distance.score(outside), wrong)
            nearest = bz.ood.NearestFeatures.fit(train, 5)
            table["nearest features"] = areas(nearest.score(inside), nearest.score(outside), wrong)
    return table


tables = [run(seed) for seed in range(num_seeds)]

# %%
# Means over splits, with their standard errors.

print(f"{'':24} {'errors':>16} {'unknown digits':>18}")
means = {}
for name in tables[0]:
    values = np.array([table[name] for table in tables])
    means[name] = values.mean(0), values.std(0) / np.sqrt(num_seeds)
    (error, unknown), (error_se, unknown_se) = means[name]
    print(f"{name:24} {error:8.3f} ± {error_se:.3f} {unknown:10.3f} ± {unknown_se:.3f}")

figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for offset, (column, label) in zip((-0.15, 0.15), ((0, "errors"), (1, "unknown digits")), strict=True):
    places = np.arange(len(means)) + offset
    centre, error = (np.array([part[i][column] for part in means.values()]) for i in (0, 1))
    axis.errorbar(centre, places, xerr=2 * error, fmt="o", label=label)
axis.set(yticks=range(len(means)), yticklabels=means, xlabel="area under the ROC")
axis.invert_yaxis()
axis.legend()
plt.show()
