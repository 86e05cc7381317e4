"""The most memory that predictions take, in memory and in a store, for numbers of rows, draws, classes and weights.

Run: python -m benchmarks.memory      (needs zarr, and 5 GiB of disk)

Every case is a process of its own that has predicted a few rows before. What the call adds to its memory is compared with the
tree that it returns, and the whole peak, with Python and all libraries, with what a store may take.
"""

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.pairs import in_process, write

IN_MEMORY = (
    (10_000, 1_000, 1),
    (10_000, 1_000, 10),
    (100_000, 100, 10),
    (100_000, 1_000, 10),
    (1_000, 1_000, 100),
    (300, 1_000, 1_000),
)
STORED = (
    (30_000, 1_000, 10),
    (100_000, 1_000, 10),
    (3_000, 1_000, 100),
    (300, 1_000, 1_000),
    (3_000, 10_000, 10),
    (100, 100_000, 10),
    (1_000_000, 10, 10),
)
WEIGHTS = (450, 440)
"""Hidden units of a network of 203,850 weights."""


def mebibytes(what: str) -> float:
    """Return the memory that this program holds, ``VmRSS``, or the most that it has held, ``VmHWM``."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(what)]
    return int(line.split()[1]) / 2**10


def run(kind: str, rows: str, draws: str, classes: str) -> None:
    """Predict, and print how much memory that took."""
    import torch

    import bnnzoo as bz

    torch.set_default_dtype(torch.float32)
    rng, num_rows, num_draws, num_classes = np.random.default_rng(0), int(rows), int(draws), int(classes)
    likelihood = bz.likelihoods.categorical() if num_classes > 1 else bz.likelihoods.gaussian()
    network = bz.models.mlp(8, WEIGHTS if kind == "weights" else (16,), num_classes)
    model = bz.models.supervised(network, bz.priors.fan_in(2.0), likelihood)
    x = rng.normal(size=(40, 8)).astype("f")
    y = np.arange(len(x)) % num_classes if num_classes > 1 else np.sin(x[:, 0])
    posterior = bz.fit(model, bz.MeanFieldVI(num_steps=20), x, y, progress=False)
    new = rng.normal(size=(num_rows, 8)).astype("f")
    with tempfile.TemporaryDirectory() as folder:
        bz.predict(posterior, new[:3], num_draws=2)
        if kind == "store":
            bz.predict(posterior, new[:3], num_draws=2, store=Path(folder) / "first.zarr")
        Path("/proc/self/clear_refs").write_text("5")  # the most from here on
        before, began = mebibytes("VmRSS"), time.perf_counter()
        store = Path(folder) / "run.zarr" if kind == "store" else None
        tree = bz.predict(posterior, new, num_draws=num_draws, store=store)
        found = {"seconds": time.perf_counter() - began, "peak": mebibytes("VmHWM"), "tree": tree.nbytes / 2**20}
        found["draws"] = num_draws * posterior.density.num_params * 4 / 2**20
    print(json.dumps(found | {"added": found["peak"] - before}))


def main() -> None:
    """Measure and write the results, in MiB and seconds."""
    cases = (
        [("memory", *case) for case in IN_MEMORY] + [("store", *case) for case in STORED] + [("weights", 5, 1_000, 1)]
    )
    found = {"_".join(map(str, case)): in_process("benchmarks.memory", "run", *case) for case in cases}
    write("memory", {"unit": "MiB", "cases": found})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(*sys.argv[2:]) if sys.argv[1:2] == ["run"] else main()
