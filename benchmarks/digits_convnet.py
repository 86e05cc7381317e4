"""A small convolutional network on MNIST: ensembles, SWAG, stochastic gradients, dropout and a last layer against the mode.

Each seed holds out three digits, trains on 1,000 images of the others at 14 x 14 pixels and tests on the rest of them. Every
method starts from or trains with the same settings of Adam, dropout with twice the steps; apart from that it has its defaults.
Each method, the mode too, has the prior scale with which it best predicts a fifth of the training images of the first seed (of
four scales, of two for the samplers), dropout also the rate, and the last layer's Laplace approximation its damping. Unknown
digits are found by the predictive entropy, by the largest expected logit and, where there are several draws, by how much they
disagree on it. Seconds are processor time of the fit and of its predictions. A run that was stopped goes on after its last score.
What an earlier one scored in fewer columns is scored again, and keeps its seconds; the samplers, which take longest, come last.

Run: python -m benchmarks.digits_convnet [seeds] [processes]     (needs images/mnist_5000.npz in BNNZOO_DATA)
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

import bnnzoo as bz
from benchmarks.out_of_distribution import (
    LIKELIHOOD,
    NUM_DRAWS,
    OF_SEVERAL_DRAWS,
    OTHERS,
    Split,
    area,
    fitted,
    load,
    split,
)
from benchmarks.pairs import RESULTS, processor_seconds, write

SHAPE, CLASSES = (1, 14, 14), 7
SCALES = (4.0, 6.0, 9.0, 14.0)
"""Of the prior, times one over the root of the number of inputs of a layer."""

RATES = (0.01, 0.05)
"""Of dropout."""

DAMPINGS = (3.0, 30.0)
"""Added to the precision of the last layer, since a Gaussian with the curvature of its mode is too wide for this posterior."""

HELD_OUT = 200
"""Images of the training part by which the scale is chosen."""

TRAINED: dict[str, Any] = {"num_steps": 1000, "learning_rate": 0.005, "batch_size": 100}
MODE = bz.MAP(**TRAINED, polish_steps=0)
METHODS: dict[str, Any] = {
    "MAP": MODE,
    "DeepEnsemble": bz.DeepEnsemble(**TRAINED),
    "MCDropout": bz.MCDropout(0.1, **TRAINED | {"num_steps": 2000}),
    "LastLayerLaplace": bz.LastLayerLaplace(map=MODE),
    "SWAG": bz.SWAG(num_steps=500, batch_size=100, init=MODE),
    "MultiSWAG": bz.MultiSWAG(swag=bz.SWAG(num_steps=500, batch_size=100, init=MODE)),
    "SGHMC": bz.SGHMC(batch_size=100),
    "StochasticMCLMC": bz.StochasticMCLMC(batch_size=100),
}

BY_LOGITS = {
    "auroc_unknown_expected_logit": "unknown by expected logits",
    "auroc_unknown_disagreement": "unknown by disagreement of logits",
}
"""Columns of scores of the digits held out, and what they are called among those of all detectors."""

type Row = dict[str, float]
type Found = dict[str, dict[str, dict[str, Row]]]
"""By part ("scales", "seeds"), method, and scale or seed."""


def images(data: Split) -> Split:
    """Return the rows as images with one channel."""
    names = ("x", "x_test", "x_unknown", "x_shuffled")
    return replace(data, **{name: getattr(data, name).reshape(-1, *SHAPE) for name in names})


def held_out(data: Split) -> Split:
    """Return the training part as a part to train on and one to test on."""
    kept, held = slice(HELD_OUT, None), slice(HELD_OUT)
    return replace(data, x=data.x[kept], y=data.y[kept], x_test=data.x[held], y_test=data.y[held])


def choices(name: str) -> dict[str, tuple[Any, float]]:
    """Return what a method's settings and the scale of its prior are chosen from."""
    method = METHODS[name]
    if isinstance(method, bz.MCDropout):
        field, values = "rate", RATES
    elif isinstance(method, bz.LastLayerLaplace):
        field, values = "damping", DAMPINGS
    else:
        scales = SCALES[1:3] if isinstance(method, bz.SGHMC | bz.StochasticMCLMC) else SCALES  # these take longest
        return {str(scale): (method, scale) for scale in scales}
    return {
        f"{field} {value}, scale {scale}": (replace(method, **{field: value}), scale)
        for value, scale in product(values, SCALES)
    }


def one(name: str, seed: int, choice: str, choosing: bool) -> Row:
    """Return the scores of one method on one seed; on a fifth of the training part if settings are to be chosen."""
    torch.set_num_threads(1)
    data, (method, scale) = images(split(load("mnist"), seed)), choices(name)[choice]
    return scores(method, held_out(data) if choosing else data, seed, scale)


def scores(method: Any, data: Split, seed: int, scale: float) -> Row:
    """Return what a method scores on the test images, and how well it finds its errors and the digits held out."""
    model = bz.models.supervised(bz.models.convnet(SHAPE, CLASSES), bz.priors.fan_in(scale), LIKELIHOOD)
    began = processor_seconds()
    posterior = fitted(model, method, data, seed)
    num_draws = None if posterior.info.sampling == "ensemble" else NUM_DRAWS
    inside = bz.predict(posterior, data.x_test, data.y_test, num_draws=num_draws, seed=seed)
    seconds = processor_seconds() - began
    unknown = bz.predict(posterior, data.x_unknown, num_draws=num_draws, seed=seed)
    wrong, entropy = bz.calibration.misclassified(inside), bz.uncertainty.predictive_entropy
    single = inside["conditional"].sizes["chain"] * inside["conditional"].sizes["draw"] == 1
    by_logits = {
        column: area(OTHERS[name](inside), OTHERS[name](unknown))
        for column, name in BY_LOGITS.items()
        if not (single and name in OF_SEVERAL_DRAWS)
    }
    return {
        "log_density": -float(bz.calibration.nll(inside).mean()),
        "error": float(wrong.mean()),
        "ece": float(bz.calibration.ece(inside)),
        "auroc_errors": float(bz.calibration.auroc(entropy(inside), wrong, num_resamples=1)["value"]),
        "auroc_unknown": area(entropy(inside), entropy(unknown)),
        **by_logits,
        "seconds": seconds,
    }


def main() -> None:
    """Choose scales, score every method seed by seed, write each score as it is there, and print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found = measured()
    with ProcessPoolExecutor(int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count(), get_context("spawn")) as pool:
        every = {(name, choice): (name, 0, choice, True) for name in METHODS for choice in choices(name)}
        fill(found, "scales", every, pool)
        best = {name: max(rows, key=lambda each: rows[each]["log_density"]) for name, rows in found["scales"].items()}
        tasks = {(name, str(seed)): (name, seed, best[name], False) for name in METHODS for seed in range(seeds)}
        fill(found, "seeds", tasks, pool)
    for name, rows in found["seeds"].items():
        gain = [row["log_density"] - found["seeds"]["MAP"][seed]["log_density"] for seed, row in rows.items()]
        print(name, best[name], summary(list(rows.values())))
        print(f"{name:18} gain in log density over MAP: {np.mean(gain):.4f} (smallest {min(gain):.4f})")


def fill(found: Found, part: str, tasks: dict[tuple[str, str], tuple[Any, ...]], pool: ProcessPoolExecutor) -> None:
    """Score what an earlier run has not, or in fewer columns; settings are chosen by the first."""
    needed = {"log_density"} if part == "scales" else {"log_density", next(iter(BY_LOGITS))}
    missing = {key: task for key, task in tasks.items() if not needed <= {*found[part].get(key[0], {}).get(key[1], {})}}
    waiting = {key: pool.submit(one, *task) for key, task in missing.items()}
    for (name, column), future in waiting.items():
        earlier, row = found[part].setdefault(name, {}).get(column, {}), future.result()
        found[part][name][column] = row = row | {key: earlier[key] for key in ("seconds",) if key in earlier}
        print(part, name, column, {key: round(value, 4) for key, value in row.items()}, flush=True)
        record(found)


def measured() -> Found:
    """Return what an earlier run wrote with the same settings: this one goes on from there."""
    path = RESULTS / "digits_convnet.json"
    earlier = json.loads(path.read_text()) if path.exists() else {"seeds": {}, "scales": {}, "settings": {}}
    same = [name for name, settings in earlier["settings"].items() if settings == repr(METHODS.get(name))]
    return {part: {name: earlier[part][name] for name in same if name in earlier[part]} for part in ("scales", "seeds")}


def record(found: Found) -> None:
    """Write all scores so far with their means."""
    settings = {name: repr(METHODS[name]) for name in found["scales"]}
    means = {name: summary(list(rows.values())) for name, rows in found["seeds"].items()}
    write("digits_convnet", {**found, "summary": means, "settings": settings})


def summary(rows: list[Row]) -> dict[str, str]:
    """Return mean and standard error over seeds."""
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0] if all(key in row for row in rows)}
    error = max(len(rows) - 1, 1) ** 0.5
    return {key: f"{value.mean():.4f} +- {value.std() / error:.4f}" for key, value in columns.items()}


if __name__ == "__main__":
    main()
