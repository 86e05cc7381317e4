"""Errors and unknown classes found by uncertainty: digits of scikit-learn and MNIST, three classes held out, five seeds.

Each seed holds out three classes of its own and splits the others anew; all methods get the same rows. Unknown are the
classes held out, and test images whose pixels were shuffled. Posteriors are judged by the entropy of their average (and,
for unknown classes, by the mutual information), densities and distances by the features of a residual network, with a
spectral bound and without, under two priors, and by those of ten draws of mean-field VI. Expected logits and the
disagreement of logits find the unknown classes, too. MNIST is taken at 14 x 14 pixels.

Run: python -m benchmarks.out_of_distribution digits [seeds]
     python -m benchmarks.out_of_distribution mnist [seeds]     (needs images/mnist_5000.npz in BNNZOO_DATA)
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from sklearn.datasets import load_digits

import bnnzoo as bz
from benchmarks.pairs import save
from bnnzoo.inference import KFACLaplace, LastLayerLaplace
from bnnzoo.predictive import features

DATA = Path(os.environ.get("BNNZOO_DATA", Path(__file__).parents[2] / "shared" / "data"))
PRIOR, LIKELIHOOD = bz.priors.fan_in(1.4), bz.likelihoods.categorical()
NUM_DRAWS = 100
BLOCKS = 3  # of the residual networks
SCALES = (1.4, 5.0)  # of their priors
COLUMNS = ("accuracy", "errors", "unknown", "shuffled")
OTHERS = {
    "unknown by information": bz.uncertainty.mutual_information,
    "unknown by expected logits": lambda tree: -bz.uncertainty.max_expected_logit(tree),
    "unknown by disagreement of logits": bz.uncertainty.logit_disagreement,
}
"""Columns that only posteriors have, and their scores of unknown classes."""
OF_SEVERAL_DRAWS = {"unknown by information", "unknown by disagreement of logits"}

type Row = dict[str, float]


@dataclass(frozen=True)
class Task:
    """Images and labels, and the sizes that suit them."""

    x: np.ndarray
    y: np.ndarray
    num_train: int
    width: int
    num_steps: int


@dataclass(frozen=True)
class Split:
    """Known classes for training and test, with labels 0 to 6, and images of the three others."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_unknown: np.ndarray
    x_shuffled: np.ndarray


def load(name: str) -> Task:
    """Return a task; MNIST is read from the folder of reference data and never downloaded."""
    if name == "digits":
        digits = load_digits()
        return Task((digits.data / 16).astype("f"), digits.target, num_train=500, width=50, num_steps=400)
    path = DATA / "images" / "mnist_5000.npz"
    if not path.exists():
        sys.exit(f"There is no {path}: set BNNZOO_DATA to a folder that has it.")
    with np.load(path) as file:
        pooled = file["images"].reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196)
        return Task((pooled / 255).astype("f"), file["labels"].astype(int), num_train=1000, width=50, num_steps=300)


def split(task: Task, seed: int) -> Split:
    """Hold out three classes, and split the rows of the others."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(10)
    known, unknown = np.sort(classes[:7]), classes[7:]
    rows = rng.permutation(np.flatnonzero(np.isin(task.y, known)))
    train, test = rows[: task.num_train], rows[task.num_train :]
    labels = np.searchsorted(known, task.y)
    outside = np.isin(task.y, unknown)
    shuffled = task.x[test][:, rng.permutation(task.x.shape[1])]
    return Split(task.x[train], labels[train], task.x[test], labels[test], task.x[outside], shuffled)


def area(inside: xr.DataArray, outside: xr.DataArray) -> float:
    """Return the probability that an unknown image scores above a known one."""
    return float(bz.calibration.auroc(*bz.calibration.versus(inside, outside), num_resamples=1)["value"])


def row(wrong: xr.DataArray, inside: xr.DataArray, outside: list[xr.DataArray]) -> Row:
    """Return the columns of the table for one uncertainty of known images and of both kinds of others."""
    errors = float(bz.calibration.auroc(inside, wrong, num_resamples=1)["value"]) if wrong.any() else np.nan
    values = (1 - float(wrong.mean()), errors, *(area(inside, scores) for scores in outside))
    return dict(zip(COLUMNS, values, strict=True)) | dict.fromkeys(OTHERS, np.nan)


def by_entropy(posterior: Any, data: Split) -> Row:
    """Judge a posterior by its predictive entropy, and unknown classes by three more scores."""
    num_draws = None if posterior.info.sampling == "ensemble" else NUM_DRAWS
    inside = bz.predict(posterior, data.x_test, data.y_test, num_draws=num_draws)
    unknown, shuffled = (bz.predict(posterior, x, num_draws=num_draws) for x in (data.x_unknown, data.x_shuffled))
    total = bz.uncertainty.predictive_entropy
    left_out = OF_SEVERAL_DRAWS if inside["conditional"].sizes["draw"] == 1 else ()
    scores = {name: score for name, score in OTHERS.items() if name not in left_out}
    found = {name: area(score(inside), score(unknown)) for name, score in scores.items()}
    wrong = bz.calibration.misclassified(inside)
    return row(wrong, total(inside), [total(unknown), total(shuffled)]) | found


def by_features(posterior: Any, data: Split, suffix: str, **draws: Any) -> dict[str, Row]:
    """Judge the features of networks by a density and by distances."""
    wrong = bz.calibration.misclassified(
        bz.predict(posterior, data.x_test, data.y_test, num_draws=draws.get("num_draws"))
    )
    inputs = (data.x, data.x_test, data.x_unknown, data.x_shuffled)
    train, inside, *outside = (features(posterior, x, **draws) for x in inputs)
    labels = xr.DataArray(data.y, dims="obs_id")
    fits = {
        "DDU": bz.ood.GaussianDensity.fit(train, labels),
        "Mahalanobis": bz.ood.Mahalanobis.fit(train, labels),
        "nearest features": bz.ood.NearestFeatures.fit(train),
    }
    return {
        f"{name}, {suffix}": row(wrong, fit.score(inside), [fit.score(other) for other in outside])
        for name, fit in fits.items()
    }


def run(task: Task, seed: int) -> dict[str, Row]:
    """Return the table of one seed."""
    data = split(task, seed)
    inputs = task.x.shape[1]
    plain = bz.models.supervised(bz.models.mlp(inputs, (task.width,), 7, "relu"), PRIOR, LIKELIHOOD)
    one = bz.MAP(num_steps=task.num_steps, learning_rate=0.01, polish_steps=0)
    ensemble = bz.MAP(num_members=5, num_steps=task.num_steps, learning_rate=0.01, polish_steps=0)
    methods = {
        "MAP": one,
        "ensemble of 5": ensemble,
        "mean-field VI": bz.MeanFieldVI(num_steps=3 * task.num_steps, num_particles=2, learning_rate=0.01, init=one,
                                        init_scale=0.01, num_averaged=task.num_steps // 2),
        "last-layer Laplace": LastLayerLaplace(map=one),
        "KFAC Laplace": KFACLaplace(map=one),
    }  # fmt: skip
    table: dict[str, Row] = {}
    for name, method in methods.items():
        with timed(name, seed):
            posterior = fitted(plain, method, data, seed)
            table[name] = by_entropy(posterior, data)
        if name == "mean-field VI":
            of_draws = by_features(posterior, data, "draws of mean-field VI", num_draws=10)
    for scale, (kind, bound) in product(SCALES, {"spectral bound": 0.95, "no bound": None}.items()):
        net = bz.models.residual_mlp(inputs, task.width, BLOCKS, 7, bound=bound)
        suffix = f"{kind}, prior {scale}"
        with timed(f"residual, {suffix}", seed):
            model = bz.models.supervised(net, bz.priors.fan_in(scale), LIKELIHOOD)
            posterior = fitted(model, one, data, seed)
            table[f"entropy, {suffix}"] = by_entropy(posterior, data)
            table |= by_features(posterior, data, suffix, at_mean=True)
    return table | of_draws


def fitted(model: Any, method: Any, data: Split, seed: int) -> Any:
    """Fit to the known classes."""
    return bz.fit(model, method, data.x, data.y, seed=seed, progress=False)


@contextmanager
def timed(name: str, seed: int) -> Iterator[None]:
    """Print how long something takes."""
    began = time.perf_counter()
    yield
    print(f"seed {seed} {name:24} {time.perf_counter() - began:6.1f} s", flush=True)


def report(name: str, tables: list[dict[str, Row]], task: Task) -> None:
    """Print means and standard deviations over seeds, and save them with every single value."""
    summary, columns = {}, (*COLUMNS, *OTHERS)
    print(f"| {name} | " + " | ".join(columns) + " |")
    for method in tables[0]:
        values = np.array([[table[method][column] for column in columns] for table in tables])
        mean, sd = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.full(len(columns), np.nan)
        summary[method] = {
            column: {"mean": float(m), "sd": float(s)}
            for column, m, s in zip(columns, mean, sd, strict=True)
            if np.isfinite(m)
        }
        cells = [f"{m:.3f} ± {s:.3f}" if np.isfinite(m) else "" for m, s in zip(mean, sd, strict=True)]
        print(f"| {method} | " + " | ".join(cells) + " |")
    found = {
        f"{method}: {column}": [float(table[method][column]) for table in tables]
        for method in tables[0]
        for column in summary[method]
    }
    sizes = {
        "num_train": task.num_train,
        "width": task.width,
        "num_steps": task.num_steps,
        "blocks": BLOCKS,
        "scales": SCALES,
    }
    save(f"out_of_distribution_{name}", "", found, "MAP: unknown", mean_and_sd=summary, sizes=sizes)


def main() -> None:
    """Run the table named on the command line."""
    if len(sys.argv) < 2 or sys.argv[1] not in ("digits", "mnist"):
        sys.exit("Say which: python -m benchmarks.out_of_distribution digits [seeds], or mnist [seeds].")
    torch.set_default_dtype(torch.float32)
    name, num_seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    task = load(name)
    report(name, [run(task, seed) for seed in range(num_seeds)], task)


if __name__ == "__main__":
    main()
