"""A small convolutional network on MNIST: ensembles, SWAG, stochastic gradients, dropout and a last layer against the mode.

Each seed holds out three digits, trains on 1,000 images of the others at 14 x 14 pixels and tests on the rest of them. Every
method starts from or trains with the same settings of Adam; apart from that it has its defaults. Seconds are processor time of
the fit and of its predictions.

Run: python -m benchmarks.digits_convnet [seeds]     (needs images/mnist_5000.npz in BNNZOO_DATA)
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import bnnzoo as bz
from benchmarks.out_of_distribution import LIKELIHOOD, NUM_DRAWS, Split, area, fitted, load, split
from benchmarks.pairs import processor_seconds, write

SHAPE, CLASSES = (1, 14, 14), 7
TRAINED: dict[str, Any] = {"num_steps": 1000, "learning_rate": 0.005, "batch_size": 100}
MODE = bz.MAP(**TRAINED, polish_steps=0)
METHODS: dict[str, Any] = {
    "MAP": MODE,
    "DeepEnsemble": bz.DeepEnsemble(**TRAINED),
    "MCDropout": bz.MCDropout(0.1, **TRAINED),
    "LastLayerLaplace": bz.LastLayerLaplace(map=MODE),
    "SWAG": bz.SWAG(num_steps=500, batch_size=100, init=MODE),
    "MultiSWAG": bz.MultiSWAG(swag=bz.SWAG(num_steps=500, batch_size=100, init=MODE)),
    "SGHMC": bz.SGHMC(batch_size=100),
    "StochasticMCLMC": bz.StochasticMCLMC(batch_size=100),
}


def images(data: Split) -> Split:
    """Return the rows as images with one channel."""
    names = ("x", "x_test", "x_unknown", "x_shuffled")
    return replace(data, **{name: getattr(data, name).reshape(-1, *SHAPE) for name in names})


def scores(method: Any, data: Split, seed: int) -> dict[str, float]:
    """Return what a method scores on the test images, and how well it finds its errors and the digits held out."""
    model = bz.models.supervised(bz.models.convnet(SHAPE, CLASSES), bz.priors.fan_in(1.4), LIKELIHOOD)
    began = processor_seconds()
    posterior = fitted(model, method, data, seed)
    num_draws = None if posterior.info.sampling == "ensemble" else NUM_DRAWS
    inside = bz.predict(posterior, data.x_test, data.y_test, num_draws=num_draws, seed=seed)
    seconds = processor_seconds() - began
    unknown = bz.predict(posterior, data.x_unknown, num_draws=num_draws, seed=seed)
    wrong, entropy = bz.calibration.misclassified(inside), bz.uncertainty.predictive_entropy
    return {
        "log_density": -float(bz.calibration.nll(inside).mean()),
        "error": float(wrong.mean()),
        "ece": float(bz.calibration.ece(inside)),
        "auroc_errors": float(bz.calibration.auroc(entropy(inside), wrong, num_resamples=1)["value"]),
        "auroc_unknown": area(entropy(inside), entropy(unknown)),
        "seconds": seconds,
    }


def main() -> None:
    """Score every method, print means with standard errors and the differences from the mode, and write them."""
    torch.set_num_threads(1)
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    splits = [images(split(load("mnist"), seed)) for seed in seeds]
    found: dict[str, list[dict[str, float]]] = {}
    for name, method in METHODS.items():
        found[name] = [scores(method, data, seed) for seed, data in zip(seeds, splits, strict=True)]
        print(name, summary(found[name]), flush=True)
    gains = {
        name: np.subtract(*([row["log_density"] for row in rows] for rows in (found[name], found["MAP"])))
        for name in METHODS
    }
    for name, gain in gains.items():
        print(f"{name:18} gain in log density over MAP: {gain.mean():.4f} (smallest {gain.min():.4f})")
    settings = {name: repr(method) for name, method in METHODS.items()}
    write(
        "digits_convnet", {"seeds": found, "summary": {n: summary(r) for n, r in found.items()}, "settings": settings}
    )


def summary(rows: list[dict[str, float]]) -> dict[str, str]:
    """Return mean and standard error over seeds."""
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    error = max(len(rows) - 1, 1) ** 0.5
    return {key: f"{value.mean():.4f} +- {value.std() / error:.4f}" for key, value in columns.items()}


if __name__ == "__main__":
    main()
