"""NUTS as typed and nutpie's own, in turn, on eight models.

Run: python -m benchmarks.nutpie PYTHON [pairs] [model ...]      (PYTHON: interpreter of an environment with nutpie[pymc])

Four chains, otherwise default settings, which differ: 1,000 iterations of warm-up and 1,000 draws here, nutpie's own numbers
there. Each side fits a model in one process: the first fit, with empty caches, includes compilation, the others, in turn and with
seeds of their own, do not. Effective draws are ArviZ's, computed here for both: the minimum over all scalars of bulk and tail.
Gradients are leapfrog steps, whatever the load of the machine; seconds are from the call to constrained draws. Log
densities are compared at three points. Nutpie's ``low_rank``, which is not its default, is a third candidate. A
model replaces what it gave before in the file of results.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np

from benchmarks.nutpie.data import DATA
from benchmarks.nutpie.worker import Worker
from benchmarks.pairs import RESULTS, runs_in_turn, write

SIDES = {"nutpie": ("nutpie", "default"), "nutpie, low rank": ("nutpie", "low_rank"), "bnnzoo": ("bnnzoo", "default")}
MEASURES = ("per_1000_gradients", "with_warm_up", "seconds", "processor", "per_second")
VERSIONS = (
    "import json, importlib.metadata as m; print(json.dumps({k: m.version(k) for k in ('nutpie', 'pymc', 'numba')}))"
)


def measured(found: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a fit, its draws replaced by how many they are worth."""
    limits: tuple[dict[str, Any], ...] = ({"method": "bulk"}, {"method": "tail", "prob": (0.05, 0.95)})
    with np.load(found.pop("draws")) as draws:
        values = [value.reshape(*value.shape[:2], -1) for value in draws.values()]
    scalars = np.concatenate(values, 2).transpose(2, 0, 1)
    ess = min(float(az.ess(scalar, **kind)) for scalar in scalars for kind in limits)
    return found | {
        "ess": ess,
        "r_hat": max(float(az.rhat(scalar)) for scalar in scalars),
        "per_1000_gradients": 1e3 * ess / found["gradients"],
        "with_warm_up": 1e3 * ess / found["all_gradients"],
        "per_second": ess / found["seconds"],
    }


def refuse_other_density(workers: dict[str, Worker]) -> None:
    """Raise ValueError unless both sides have the same log density up to a constant."""
    ours = workers["bnnzoo"].ask(points=None)
    theirs = workers["nutpie"].ask(points=ours["points"])["values"]
    differences = np.subtract(ours["values"], theirs)
    if np.ptp(differences) > 1e-9 * np.abs(theirs).max():
        raise ValueError(f"Log densities differ by {differences}, which is no constant.")


def compared(name: str, python: str, pairs: int, folder: Path) -> dict[str, Any]:
    """Return what all sides measured on one model."""

    modules = {"bnnzoo": (sys.executable, "benchmarks.nutpie.in_pyro"), "nutpie": (python, "benchmarks.nutpie.in_pymc")}
    workers = {side: Worker(*how, name, folder / f"{name} {side}") for side, how in modules.items()}
    first = {side: workers[side].ask(kind="default", seed=1000)["seconds"] for side in workers}

    def run(side: str, seed: int) -> dict[str, float]:
        worker, kind = SIDES[side]
        return measured(workers[worker].ask(kind=kind, seed=seed))

    _, runs = runs_in_turn(SIDES, run, "seconds", pairs)
    refuse_other_density(workers)
    for worker in workers.values():
        worker.close()
    medians = {
        side: {key: statistics.median(each[key] for each in runs[side]) for key in runs[side][0]} for side in SIDES
    }
    ratios = {
        peer: {key: medians["bnnzoo"][key] / medians[peer][key] for key in MEASURES}
        for peer in SIDES
        if peer != "bnnzoo"
    }
    compiling = {side: first[side] - medians[side]["seconds"] for side in workers}
    for side, median in medians.items():
        print(name, side, {key: round(value, 3) for key, value in median.items()}, flush=True)
    print(name, {peer: {key: round(value, 2) for key, value in each.items()} for peer, each in ratios.items()})
    print(name, "compilation", {side: round(value, 1) for side, value in compiling.items()}, flush=True)
    return {"medians": medians, "ratios": ratios, "compilation": compiling, "runs": runs}


def record(name: str, found: dict[str, Any], peer: dict[str, str]) -> None:
    """Write what a model gave in place of what it gave before, and medians over all models."""
    path = RESULTS / "nutpie.json"
    before = json.loads(path.read_text())["models"] if path.exists() else {}
    models = {each: value for each, value in (before | {name: found}).items() if each in DATA}
    ratios = {
        side: {key: statistics.median(each["ratios"][side][key] for each in models.values()) for key in MEASURES}
        for side in SIDES
        if side != "bnnzoo"
    }
    print("bnnzoo's over each peer's, median over models:", ratios, flush=True)
    write("nutpie", {"ratios": ratios, "peer": peer, "models": models})


def main(python: str, pairs: int = 5, names: tuple[str, ...] = ()) -> None:
    """Compare both sides on every model, or on those that are named."""
    peer = json.loads(subprocess.check_output([python, "-c", VERSIONS], text=True))
    with tempfile.TemporaryDirectory() as folder:
        for name in names or DATA:
            record(name, compared(name, python, pairs, Path(folder)), peer)


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 5, tuple(sys.argv[3:]))
