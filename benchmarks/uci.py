"""UCI regression on the standard splits: RMSE and log density in original units, next to published rows.

One hidden layer of 50 units, inputs and target standardised by the training part. Methods have their default settings apart
from those in uci_candidates.json, among which each split chooses by the log density of a fifth of its training part; nothing is
chosen on a test part. That list has a date and is not changed under it; each score says of which list it is. A log density is
that of the mixture of all draws, not of one fitted Gaussian. Scores are no times, so the machine does not matter. Splits run in
as many processes as there are cores, or as given; a run that was stopped goes on where it was.

Run: python -m benchmarks.uci DATA [sets] [methods] [splits] [processes]    (for example data/uci concrete,yacht SGHMC 10 4)
     python -m benchmarks.uci least_squares DATA GAP_DATA                   (the linear regression of the tables)
"""

import hashlib
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bnnzoo as bz
from benchmarks.pairs import RESULTS, write
from bnnzoo.apps.benchmarking.published import PUBLISHED

UNITS, SETS = 50, ("concrete", "energy", "yacht")

type Candidate = tuple[Any, float]
"""A method, and the scale of the prior of weights and biases."""

FILE = Path(__file__).parent / "uci_candidates.json"


def candidates_of(text: str) -> tuple[dict[str, list[Candidate]], dict[str, str]]:
    """Return the settings among which each split of a method chooses, and which list they are: its date and digest."""
    found = json.loads(text)
    lists: dict[str, list[Candidate]] = {}
    for method, values in found["candidates"].items():
        for each in product(*values.values()):
            settings = dict(zip(values, each, strict=True))
            scale = settings.pop("scale")
            lists.setdefault(method, []).append((getattr(bz, method)(**settings), scale))
    digest = hashlib.sha256(json.dumps(found["candidates"], sort_keys=True).encode()).hexdigest()
    return lists, {"date": found["date"], "sha256": digest}


CANDIDATES, LIST = candidates_of(FILE.read_text(encoding="utf-8"))

type Array = NDArray[np.floating]


def fitted_scores(
    candidate: Candidate, train: tuple[Array, Array], test: tuple[Array, Array], seed: int
) -> dict[str, float]:
    """Fit to ``train`` and score ``test``: RMSE and mean log density, in the units of the data given."""
    net = bz.models.mlp(train[0].shape[1], (UNITS,), activation="relu")
    method, scale = candidate
    model = bz.models.supervised(net, bz.priors.fan_in(scale, scale), bz.likelihoods.gaussian())
    return scores_of(bz.predict(bz.fit(model, method, *train, seed=seed, progress=False), *test, seed=seed), test[1])


def scores_of(tree: Any, y: Array) -> dict[str, float]:
    """Return RMSE and mean log density of predictions of ``y``, as above."""
    mean = tree["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    log_density = -bz.calibration.nll(tree).to_numpy()
    return {"rmse": float(np.sqrt(np.mean((mean - y) ** 2))), "log_density": float(log_density.mean())}


def in_original_units(scores: dict[str, float], part: bz.datasets.Split) -> dict[str, float]:
    """Return scores of a standardised split in the units of its data."""
    return {
        "rmse": scores["rmse"] * part.y_scale,
        "log_density": scores["log_density"] - float(np.log(part.y_scale)),
    }


def fifth(num_rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of a training part on which settings are compared, a fifth of them, and those that are fitted."""
    held, kept = np.split(np.random.default_rng(seed).permutation(num_rows), [num_rows // 5])
    return held, kept


def chosen(name: str, x: Array, y: Array, seed: int) -> Candidate:
    """Return the candidate that best predicts a fifth of the training part after a fit to the rest."""
    candidates = CANDIDATES[name]
    if len(candidates) == 1:
        return candidates[0]
    held, kept = fifth(len(y), seed)
    found = [fitted_scores(each, (x[kept], y[kept]), (x[held], y[held]), seed)["log_density"] for each in candidates]
    return candidates[int(np.argmax(found))]


def one_split(folder: Path, name: str, split: int) -> dict[str, Any]:
    """Return what a method scores on the test part of one split, in original units."""
    part = bz.datasets.uci_split(folder, split).standardized()
    start = time.perf_counter()
    candidate = chosen(name, part.x_train, part.y_train, split)
    found = fitted_scores(candidate, (part.x_train, part.y_train), (part.x_test, part.y_test), split)
    return {
        **in_original_units(found, part),
        "seconds": time.perf_counter() - start,
        "settings": CANDIDATES[name].index(candidate),
        "candidates": LIST["sha256"],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return the mean over splits and its standard error, of RMSE and log density."""
    values = {key: np.array([row[key] for row in rows]) for key in ("rmse", "log_density")}
    return {key: (float(v.mean()), float(v.std(ddof=1) / len(v) ** 0.5)) for key, v in values.items()}


def main(
    data: str,
    sets: str = ",".join(SETS),
    methods: str = "DeepEnsemble,MCDropout",
    splits: str = "10",
    processes: str = "",
) -> None:
    """Score methods on the first splits of some sets, print the table and write it after each split."""
    context = get_context("spawn")
    with ProcessPoolExecutor(int(processes or os.cpu_count() or 1), context, initializer=_one_thread) as pool:
        for name, method in product(sets.split(","), methods.split(",")):
            rows = measured(name, method)[: int(splits)]
            tasks = [
                pool.submit(one_split, Path(data) / name, method, split) for split in range(len(rows), int(splits))
            ]
            for task in tasks:
                rows.append(task.result())
                record(name, method, rows)
            print(name, method, {key: f"{m:.3f} +- {e:.3f}" for key, (m, e) in summary(rows).items()}, flush=True)


def least_squares(data: str, gap_data: str) -> None:
    """Score a linear regression with Gaussian noise on ten standard splits of all sets, and on the gap splits of concrete."""
    rows: list[dict[str, Any]] = []
    parts: list[tuple[str, int, Path | None]] = [(name, split, None) for name, split in product(SETS, range(10))]
    parts += [("concrete", split, Path(gap_data) / "concrete") for split in range(8)]
    for name, split, gaps in parts:
        part = bz.datasets.uci_split(Path(data) / name, split, gaps)
        train, test = (np.column_stack([np.ones(len(x)), x]) for x in (part.x_train, part.x_test))
        weights = np.linalg.lstsq(train, part.y_train, rcond=None)[0]
        variance = np.mean((part.y_train - train @ weights) ** 2)
        square = np.mean((part.y_test - test @ weights) ** 2)
        log_density = -0.5 * (np.log(2 * np.pi * variance) + square / variance)
        found = {"rmse": float(np.sqrt(square)), "log_density": float(log_density)}
        rows.append({"set": f"{name}, gaps" if gaps else name, "method": "least squares", "split": split, **found})
    write("uci_least_squares", {"scores": rows, "published": PUBLISHED})


def measured(name: str, method: str) -> list[dict[str, Any]]:
    """Return the splits that an earlier run wrote with the same list of candidates: this one goes on after them."""
    path = RESULTS / f"uci_{name}_{method}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    is_same = found.get("settings") == described(method) and found.get("candidates") == LIST
    rows: list[dict[str, Any]] = found["splits"] if is_same else []
    return rows


def described(method: str) -> list[str]:
    """Return a method's candidates as they are printed."""
    return [f"{each}" + (f", prior scale {scale:g}" if scale != 1 else "") for each, scale in CANDIDATES[method]]


def record(name: str, method: str, rows: list[dict[str, Any]]) -> None:
    """Write the splits so far, their mean and standard error, and the published rows."""
    found = summary(rows) if len(rows) > 1 else {}
    published = {row: values[name] for row, values in PUBLISHED.items()}
    scores = {key: round(rows[-1][key], 3) for key in ("rmse", "log_density", "seconds")}
    print(name, method, len(rows) - 1, scores, flush=True)
    facts = {"splits": rows, "mean_and_standard_error": found, "published": published, "settings": described(method)}
    facts["candidates"] = LIST
    write(f"uci_{name}_{method}", facts)


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


if __name__ == "__main__":
    if sys.argv[1] == "least_squares":
        least_squares(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
