"""Bayesian low-rank adapters against point adapters: what a posterior over adapters adds to a trained network.

`digits`: a network trained on MNIST's digits 0 to 4, adapted to 5 to 9 with few images. `text`: a small transformer trained on
docstrings of some modules of the standard library, adapted to others; it predicts the next character. All methods have
the same adapters and priors N(0, 0.2^2), a scale that was chosen for point adapters to digits, from 0.03, 0.1, 0.2 and 0.5 on a
seed that the table does not have. `scales` says what others do for the text, on such a seed. Runs in the file of results are not
repeated.

Run: BNNZOO_DATA=... python -m benchmarks.lora digits|text [seeds] [method ...]
     python -m benchmarks.lora scales [method ...]
     python -m benchmarks.lora table
"""

import json
import sys
import warnings
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch

import bnnzoo as bz
from benchmarks.adapter_problems import Problem, digits, text
from benchmarks.pairs import RESULTS, processor_seconds, write
from bnnzoo import inference

NAME = "lora"
PROBLEMS = {"digits": digits, "text": text}
SCALE, SCALES, OTHER_SEED = 0.2, (0.05, 0.1, 0.2), 9
NUM_DRAWS = 50
BATCH, LARGE = 200, 1000  # rows of a mini-batch, where there are more rows than LARGE
COLUMNS = ("log density", "gain", "error", "ECE", "seconds")

type Row = dict[str, float]


def methods(problem: Problem) -> dict[str, Any]:
    """Return the methods of the table; all but ensembles and SGHMC start at the network as it was trained."""
    batch_size = BATCH if len(problem.x) > LARGE else None
    steps: dict[str, Any] = {"num_steps": 200, "learning_rate": 0.02, "batch_size": batch_size}
    mode = bz.MAP(**steps, polish_steps=0, init=problem.net.state_dict())
    swag = bz.SWAG(200, learning_rate=0.01, init=mode)
    return {
        "MAP": mode,
        "DiagonalLaplace": inference.DiagonalLaplace(map=mode),
        "KFACLaplace": inference.KFACLaplace(map=mode),
        "LowRankLaplace": inference.LowRankLaplace(map=mode),
        "LastLayerLaplace": inference.LastLayerLaplace(map=mode),
        "MeanFieldVI": bz.MeanFieldVI(num_steps=400, learning_rate=0.02, init=mode, init_scale=0.01),
        "SWAG": swag,
        "DeepEnsemble": bz.DeepEnsemble(5, **steps),
        "MultiSWAG": bz.MultiSWAG(5, replace(swag, init=replace(mode, init=None))),  # members in different modes
        "SGHMC": inference.SGHMC(num_chains=2, num_warmup=100, num_draws=50, batch_size=100, optimise_steps=300),
    }


@cache
def problem_of(name: str, seed: int) -> Problem:
    """Return a problem; its network is trained once."""
    return PROBLEMS[name](seed)


@cache
def predicted(name: str, method: str, seed: int, scale: float) -> Any:
    """Adapt the network of a problem by one method, and predict the test rows."""
    problem = problem_of(name, seed)
    model = bz.models.supervised(problem.net, bz.priors.normal(scale), bz.likelihoods.categorical())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)  # budgets are short, and weights mix worse than functions
        posterior = bz.fit(model, methods(problem)[method], problem.x, problem.y, seed=seed, progress=False)
    num_draws = None if posterior.info.sampling == "ensemble" else NUM_DRAWS
    return bz.predict(posterior, problem.x_test, problem.y_test, num_draws=num_draws, seed=seed)


def run(name: str, method: str, seed: int) -> Row:
    """Judge one method by the test rows, and by its gain in log density over MAP, with the standard error over rows."""
    problem, began = problem_of(name, seed), processor_seconds()
    tree = predicted(name, method, seed, SCALE)
    seconds = processor_seconds() - began
    gain = bz.calibration.nll(predicted(name, "MAP", seed, SCALE)) - bz.calibration.nll(tree)
    logits = problem.net(problem.x_test)
    return scores(tree) | {
        "gain": float(gain.mean()),
        "gain_error": float(gain.std(ddof=1)) / gain.size**0.5,
        "seconds": seconds,
        "share": problem.share,
        "unadapted": float(-torch.nn.functional.cross_entropy(logits, problem.y_test)),
    }


def scores(tree: Any) -> Row:
    """Return log density, error and calibration error of the test rows."""
    return {
        "log density": -float(bz.calibration.nll(tree).mean()),
        "error": float(bz.calibration.misclassified(tree).mean()),
        "ECE": float(bz.calibration.ece(tree)),
    }


def found_so_far(part: str = "runs") -> dict[str, Any]:
    """Return the runs in the file of results, by problem, method and seed, or the scales tried."""
    path = RESULTS / f"{NAME}.json"
    found: dict[str, Any] = json.loads(path.read_text()).get(part, {}) if path.exists() else {}
    return found


def record(part: str, name: str, method: str, column: str, row: Row) -> None:
    """Write one more row into the file of results."""
    print(part, name, method, column, {key: round(value, 3) for key, value in row.items()}, flush=True)
    found = {each: found_so_far(each) for each in ("scales", "runs")}
    found[part].setdefault(name, {}).setdefault(method, {})[column] = row
    write(NAME, {"num_draws": NUM_DRAWS, **found})


def try_scales(chosen: list[str]) -> None:
    """Fit each method to another seed's text with every scale."""
    for method, scale in product(chosen, SCALES):
        if str(scale) not in found_so_far("scales").get("text", {}).get(method, {}):
            record("scales", "text", method, str(scale), scores(predicted("text", method, OTHER_SEED, scale)))


def table(runs: dict[str, Any]) -> None:
    """Print means over seeds; the standard error of the gain is that over test rows."""
    for name, found in runs.items():
        print(f"\n{name}\n\n| | " + " | ".join(COLUMNS) + " | seeds |\n" + "|---" * (len(COLUMNS) + 2) + "|")
        for method in (each for each in methods(NO_PROBLEM) if each in found):
            rows = list(found[method].values())
            mean = {column: np.mean([row[column] for row in rows]) for column in COLUMNS}
            error = np.sqrt(sum(row["gain_error"] ** 2 for row in rows)) / len(rows)
            print(
                f"| {method} | {mean['log density']:.3f} | {mean['gain']:+.3f} ± {error:.3f} | {mean['error']:.3f} | "
                f"{mean['ECE']:.3f} | {mean['seconds']:.0f} | {len(rows)} |"
            )


NONE = torch.empty(0)
NO_PROBLEM = Problem(torch.nn.Identity(), NONE, NONE, NONE, NONE, 0.0)


def main() -> None:
    """Run what is missing, seed by seed, and write the results after every fit."""
    torch.set_default_dtype(torch.float32)
    name, *rest = sys.argv[1:]
    if name == "table":
        return table(found_so_far())
    # torch's attention reads its weights, which have no Kronecker factors
    possible = [each for each in methods(NO_PROBLEM) if name == "digits" or each != "KFACLaplace"]
    if name == "scales":
        return try_scales(rest or possible)
    num_seeds, chosen = int(rest[0]) if rest else 3, rest[1:] or possible
    for seed, method in product(range(num_seeds), chosen):
        if str(seed) not in found_so_far().get(name, {}).get(method, {}):
            record("runs", name, method, str(seed), run(name, method, seed))


if __name__ == "__main__":
    main()
