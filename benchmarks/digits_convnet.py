"""A small convolutional network on MNIST: ensembles, SWAG, stochastic gradients, dropout and a last layer against the mode.

Each seed holds out three digits, trains on 1,000 images of the others at 14 x 14 pixels and tests on the rest of them. Every
method starts from or trains with the same settings of Adam; apart from that it has its defaults. Seconds are processor time of
the fit and of its predictions. A run that was stopped goes on after its last score.

Run: python -m benchmarks.digits_convnet [seeds]     (needs images/mnist_5000.npz in BNNZOO_DATA)
"""

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import bnnzoo as bz
from benchmarks.out_of_distribution import LIKELIHOOD, NUM_DRAWS, Split, area, fitted, load, split
from benchmarks.pairs import RESULTS, processor_seconds, write

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
    """Score every method seed by seed, write each score as it is there, and print the table."""
    torch.set_num_threads(1)
    found = measured()
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        data = images(split(load("mnist"), seed))
        for name, method in METHODS.items():
            rows = found.setdefault(name, {})
            if str(seed) not in rows:
                rows[str(seed)] = scores(method, data, seed)
                print(seed, name, {key: round(value, 4) for key, value in rows[str(seed)].items()}, flush=True)
                record(found)
    for name, rows in found.items():
        gain = [row["log_density"] - found["MAP"][seed]["log_density"] for seed, row in rows.items()]
        print(name, summary(list(rows.values())))
        print(f"{name:18} gain in log density over MAP: {np.mean(gain):.4f} (smallest {min(gain):.4f})")


def measured() -> dict[str, dict[str, dict[str, float]]]:
    """Return the scores of each method and seed that an earlier run wrote with the same settings: this one goes on from there."""
    path = RESULTS / "digits_convnet.json"
    earlier = json.loads(path.read_text()) if path.exists() else {"seeds": {}, "settings": {}}
    return {
        name: rows for name, rows in earlier["seeds"].items() if earlier["settings"][name] == repr(METHODS.get(name))
    }


def record(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Write all scores so far with their means."""
    settings = {name: repr(METHODS[name]) for name in found}
    means = {name: summary(list(rows.values())) for name, rows in found.items()}
    write("digits_convnet", {"seeds": found, "summary": means, "settings": settings})


def summary(rows: list[dict[str, float]]) -> dict[str, str]:
    """Return mean and standard error over seeds."""
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    error = max(len(rows) - 1, 1) ** 0.5
    return {key: f"{value.mean():.4f} +- {value.std() / error:.4f}" for key, value in columns.items()}


if __name__ == "__main__":
    main()
