"""Airfoil self-noise: a deep ensemble, and microcanonical chains that start from its members, against published ensembles.

Eighty percent of the rows are for training; inputs and target are standardised by them. The network has four hidden layers of 16
units, a noise scale that depends on the inputs and the prior N(0, 1), as in the published run. Of two activations that is taken
with which the deep ensemble best predicts a fifth of the training part. Seconds are processor time of fit and predictions.

Run: python -m benchmarks.airfoil [method ...]      (needs airfoil.csv in BNNZOO_DATA)
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

import bnnzoo as bz
from benchmarks.pairs import processor_seconds, write

HIDDEN, ACTIVATIONS = (16, 16, 16, 16), ("relu", "tanh")
ENSEMBLE = bz.DeepEnsemble(8, num_steps=4000)
METHODS: dict[str, Any] = {
    "DeepEnsemble": ENSEMBLE,
    "MCLMC": bz.MCLMC(
        num_chains=8, num_warmup=500, num_draws=125, steps_per_draw=2500, energy_variance=0.05, init=ENSEMBLE
    ),
}
PUBLISHED = {"deep ensemble": (0.365, 0.176), "microcanonical ensemble": (0.1215, -0.913)}
"""RMSE and negative log density of scikit-learn-contrib's bde (2026) on the same split."""


def scored(method: Any, activation: Any, part: bz.datasets.Split) -> dict[str, Any]:
    """Fit to the training part and predict the other."""
    x_test, y_test = part.x_test, part.y_test
    net = bz.models.mlp(x_test.shape[1], HIDDEN, 2, activation=activation)
    model = bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.heteroscedastic_gaussian())
    began = processor_seconds()
    posterior = bz.fit(model, method, part.x_train, part.y_train, seed=0, progress=False)
    tree = bz.predict(posterior, x_test, y_test, num_draws=None, seed=0)
    seconds = processor_seconds() - began
    mean = tree["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    return {
        "rmse": float(np.sqrt(np.mean((mean - y_test) ** 2))),
        "nll": float(bz.calibration.nll(tree).mean()),
        "coverage of 90% intervals": float(bz.calibration.coverage_curve(tree, levels=[0.9])["coverage"].squeeze()),
        "seconds": seconds,
    }


def standardised(rows: NDArray[np.floating], seed: int) -> bz.datasets.Split:
    """Return four fifths of the rows for training and the rest, whose last column is the target, in units of the former."""
    train, test = train_test_split(rows, test_size=0.2, random_state=seed)
    return bz.datasets.Split(train[:, :-1], train[:, -1], test[:, :-1], test[:, -1]).standardized()


def main() -> None:
    """Choose the activation, score the methods, write the scores and print them."""
    rows = np.loadtxt(Path(os.environ["BNNZOO_DATA"]) / "airfoil.csv", delimiter=",", skiprows=1)
    train, _ = train_test_split(rows, test_size=0.2, random_state=0)
    inner, part = standardised(train, seed=1), standardised(rows, seed=0)
    choice = {activation: scored(ENSEMBLE, activation, inner) for activation in ACTIVATIONS}
    activation = min(ACTIVATIONS, key=lambda each: choice[each]["nll"])
    print("chosen by", choice, flush=True)
    line = LinearRegression().fit(part.x_train, part.y_train).predict(part.x_test)
    floor = np.sqrt(np.mean((line - part.y_test) ** 2))
    found: dict[str, Any] = {"linear regression": {"rmse": float(floor)}}
    for name in sys.argv[1:] or METHODS:
        found[name] = scored(METHODS[name], activation, part) | {"method": repr(METHODS[name])}
        print(name, activation, {key: value for key, value in found[name].items() if key != "method"}, flush=True)
        write("airfoil", {"activation": activation, "choice": choice, "scores": found, "published": PUBLISHED})


if __name__ == "__main__":
    main()
