"""Do aleatoric and epistemic uncertainty measure different things? Every method on digits, with known noise of both kinds.

Each seed holds out two of scikit-learn's ten digits and trains a network of 30 units on 500 images of the others. Labels are
flipped with a known probability that depends on the class, from 0 to 0.45, so that the entropy of the label given the image is
known: aleatoric uncertainty should rank the test images as that entropy does. Test images get Gaussian noise on their pixels
in five severities: epistemic uncertainty should grow with it. The digits held out should be told from the others, and the two
uncertainties should not rank the clean test images alike.

Runs that are in the file of results are not repeated, so the script can be stopped at any time and goes on where it was.

Run: python -m benchmarks.disentanglement [seeds] [method ...]
     python -m benchmarks.disentanglement table
"""

import json
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from scipy.stats import spearmanr
from sklearn.datasets import load_digits

import bnnzoo as bz
from benchmarks.out_of_distribution import area
from benchmarks.pairs import RESULTS, processor_seconds, write
from bnnzoo import inference

NAME = "disentanglement"
NUM_TRAIN, NUM_TEST, WIDTH, NUM_DRAWS = 500, 500, 30, 100
CLASSES, HELD_OUT = 8, 2
SEVERITIES = (0.1, 0.2, 0.3, 0.4, 0.5)  # standard deviations of the noise, of pixels between 0 and 1
COLUMNS = ("accuracy", "both", "label entropy", "severity", "total", "aleatoric", "epistemic")

TRAINED: dict[str, Any] = {"num_steps": 600, "learning_rate": 0.01}
MODE = bz.MAP(**TRAINED, polish_steps=0)
VARIATIONAL: dict[str, Any] = {"num_steps": 2000, "learning_rate": 0.01, "init": MODE, "init_scale": 0.01}
CHAINS: dict[str, Any] = {"num_chains": 2, "num_warmup": 200, "num_draws": 100}
BATCH: dict[str, Any] = {"batch_size": 50}

METHODS: dict[str, Any] = {
    "MAP": MODE,
    "DeepEnsemble": bz.DeepEnsemble(10, **TRAINED),
    "MCDropout": bz.MCDropout(0.1, **TRAINED),
    "ConcreteDropout": inference.ConcreteDropout(**TRAINED),
    "LastLayerLaplace": inference.LastLayerLaplace(map=MODE),
    "DiagonalLaplace": inference.DiagonalLaplace(map=MODE),
    "KFACLaplace": inference.KFACLaplace(map=MODE),
    "LowRankLaplace": inference.LowRankLaplace(map=MODE),
    "MeanFieldVI": bz.MeanFieldVI(**VARIATIONAL),
    "LastLayerVI": inference.LastLayerVI(vi=bz.MeanFieldVI(num_steps=2000, learning_rate=0.01)),
    "LowRankVI": inference.LowRankVI(**VARIATIONAL),
    "SWAG": bz.SWAG(500, **BATCH, init=MODE),
    "MultiSWAG": bz.MultiSWAG(5, bz.SWAG(500, **BATCH, init=MODE)),
    "SGLD": inference.SGLD(**BATCH),
    "PSGLD": inference.PSGLD(**BATCH),
    "SGHMC": inference.SGHMC(**BATCH),
    "CyclicalSGMCMC": inference.CyclicalSGMCMC(**BATCH),
    "StochasticMCLMC": inference.StochasticMCLMC(**BATCH),
    "MCLMC": inference.MCLMC(**CHAINS),
    "MAMS": inference.MAMS(**CHAINS),
    "ChEESHMC": inference.ChEESHMC(**CHAINS),
    "HMC": inference.HMC(**CHAINS),
    "NUTS": bz.NUTS(**CHAINS, max_tree_depth=7),
    "Laplace": bz.Laplace(map=MODE),
    "FullRankVI": inference.FullRankVI(**VARIATIONAL),
}

type Row = dict[str, float]


@dataclass(frozen=True)
class Split:
    """Training images with flipped labels, test images with the entropy of their labels, and images of other digits."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    label_entropy: np.ndarray
    x_unknown: np.ndarray


def split(seed: int) -> Split:
    """Hold out two digits, and flip labels of the others to the next class with the probability of their class."""
    digits = load_digits()
    rng = np.random.default_rng(seed)
    classes = rng.permutation(10)
    known = classes[:CLASSES]
    flips = np.linspace(0.0, 0.45, CLASSES)
    rows = rng.permutation(np.flatnonzero(np.isin(digits.target, known)))[: NUM_TRAIN + NUM_TEST]
    labels = np.array([list(known).index(digit) for digit in digits.target[rows]])
    x, train = (digits.data[rows] / 16).astype("f"), slice(NUM_TRAIN)
    flipped = rng.uniform(size=NUM_TRAIN) < flips[labels[train]]
    entropy = -flips * np.log(np.where(flips > 0, flips, 1)) - (1 - flips) * np.log1p(-flips)
    unknown = ~np.isin(digits.target, known)
    return Split(
        x=x[train],
        y=(labels[train] + flipped) % CLASSES,
        x_test=x[NUM_TRAIN:],
        y_test=labels[NUM_TRAIN:],
        label_entropy=entropy[labels[NUM_TRAIN:]],
        x_unknown=(digits.data[unknown] / 16).astype("f"),
    )


def judged(posterior: Any, data: Split, seed: int) -> Row:
    """Return the columns of the table for one posterior."""
    clean, *noisy = (parts(posterior, x, seed) for x in (data.x_test, *with_noise(data.x_test, seed)))
    unknown = parts(posterior, data.x_unknown, seed)
    right = 1 - bz.calibration.misclassified(predicted(posterior, data.x_test, seed, data.y_test)).mean()
    has_epistemic = float(clean["epistemic"].max()) > 1e-6  # a point estimate has none but rounding errors
    rows = {
        "accuracy": float(right),
        "both": float(bz.uncertainty.rank_correlation(clean)) if has_epistemic else np.nan,
        "label entropy": float(spearmanr(clean["aleatoric"], data.label_entropy)[0]),
        "severity": growth([clean, *noisy]) if has_epistemic else np.nan,
    }
    rows |= {name: area(clean[name], unknown[name]) for name in ("total", "aleatoric", "epistemic")}
    return rows if has_epistemic else rows | {"epistemic": np.nan}


def growth(levels: list[xr.Dataset]) -> float:
    """Return the rank correlation of epistemic uncertainty with the severity of the noise, over all images."""
    severity = np.repeat([0.0, *SEVERITIES], levels[0].sizes["obs_id"])
    return float(spearmanr(np.concatenate([each["epistemic"] for each in levels]), severity)[0])


def with_noise(x: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return the images with the same noise in every severity, clipped to the range of pixels."""
    noise = np.random.default_rng(seed + 1000).normal(size=x.shape)
    return [np.clip(x + severity * noise, 0, 1).astype("f") for severity in SEVERITIES]


def parts(posterior: Any, x: np.ndarray, seed: int) -> xr.Dataset:
    """Return total, aleatoric and epistemic uncertainty in nats; of a single network all is aleatoric."""
    tree = predicted(posterior, x, seed)
    if tree["conditional"].sizes["draw"] * tree["conditional"].sizes["chain"] > 1:
        return bz.uncertainty.decompose(tree)
    total = bz.uncertainty.predictive_entropy(tree)
    return xr.Dataset({"total": total, "aleatoric": total, "epistemic": xr.zeros_like(total)})


def predicted(posterior: Any, x: np.ndarray, seed: int, *y: np.ndarray) -> xr.DataTree:
    """Return predictions of at most a hundred draws."""
    num_draws = None if posterior.info.sampling == "ensemble" else NUM_DRAWS
    return bz.predict(posterior, x, *y, num_draws=num_draws, seed=seed)


def run(name: str, seed: int) -> Row:
    """Fit one method to one split and judge it."""
    data, began = split(seed), processor_seconds()
    model = bz.models.supervised(
        bz.models.mlp(64, (WIDTH,), CLASSES, "relu"), bz.priors.fan_in(1.4), bz.likelihoods.categorical()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)  # budgets are short, and weights mix worse than functions
        posterior = bz.fit(model, METHODS[name], data.x, data.y, seed=seed, progress=False)
    return judged(posterior, data, seed) | {"seconds": processor_seconds() - began}


def found_so_far() -> dict[str, dict[str, Row]]:
    """Return the runs in the file of results, by method and seed."""
    path = RESULTS / f"{NAME}.json"
    return json.loads(path.read_text())["runs"] if path.exists() else {}


def table(runs: dict[str, dict[str, Row]]) -> None:
    """Print means and ranges over seeds."""
    print("| | " + " | ".join(COLUMNS) + " | seeds |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for name in (name for name in METHODS if name in runs):
        values = np.array([[row[column] for column in COLUMNS] for row in runs[name].values()], float)
        cells = [
            "" if np.isnan(mean) else f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ({low:.2f} to {high:.2f})"
            for mean, low, high in zip(values.mean(0), values.min(0), values.max(0), strict=True)
        ]
        print(f"| {name} | " + " | ".join(cells) + f" | {len(values)} |")


def main() -> None:
    """Run what is missing, seed by seed, and write the results after every fit."""
    torch.set_default_dtype(torch.float32)
    arguments = sys.argv[1:]
    if arguments[:1] == ["table"]:
        return table(found_so_far())
    num_seeds = int(arguments[0]) if arguments else 3
    names = arguments[1:] or list(METHODS)
    for name, seed in ((name, seed) for seed in range(num_seeds) for name in names):
        runs = found_so_far()
        if str(seed) in runs.get(name, {}):
            continue
        row = run(name, seed)
        print(f"seed {seed} {name:18}", {key: round(value, 3) for key, value in row.items()}, flush=True)
        runs.setdefault(name, {})[str(seed)] = row
        sizes = {"num_train": NUM_TRAIN, "num_test": NUM_TEST, "width": WIDTH, "severities": SEVERITIES}
        write(NAME, {"runs": runs, "facts": {"sizes": sizes, "settings": {key: repr(METHODS[key]) for key in runs}}})
    return table(found_so_far())


if __name__ == "__main__":
    main()
