"""Time and memory of the decomposition of 1,000 draws x 100,000 rows x 10 classes, from a file opened lazily.

Writes the probabilities to a netCDF file (4 GB in single precision, 8 GB in double), then, in a process of its own for
each way of opening it, measures the peak memory, the time of the decomposition, and the time of three plain sums over the
same array read in the same blocks. One way loads the array first (4 GB of memory, or 8): then both run at memory speed.

Run: python -m benchmarks.decompose --folder /tmp/decompose [--rows 100000] [--dtype float32]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from benchmarks.pairs import save
from bnnzoo.trees import tiles
from bnnzoo.uncertainty import decompose

CLASSES = 10
WAYS = {
    "lazy, with entropy": {"chunks": None, "entropy": True},
    "lazy, probs only": {"chunks": None, "entropy": False},
    "dask chunks, with entropy": {"chunks": {"draw": 100, "obs_id": 5000}, "entropy": True},
    "loaded, with entropy": {"chunks": None, "entropy": True, "load": True},
}


def write(path: Path, draws: int, rows: int, dtype: str) -> None:
    """Write draws one by one, so that this needs no memory either."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(rows, CLASSES))
    with h5py.File(path, "w") as file:
        shape = (1, draws, rows, CLASSES)
        probs = file.create_dataset("conditional/probs", shape, dtype)
        entropy = file.create_dataset("conditional/entropy", shape[:-1], dtype)
        for draw in range(draws):
            p = np.exp(logits + 0.5 * rng.normal(size=CLASSES))
            p /= p.sum(-1, keepdims=True)
            probs[0, draw] = p
            entropy[0, draw] = -(p * np.log(p)).sum(-1)


def opened(path: Path, way: dict[str, Any]) -> xr.DataTree:
    """Open the file as a tree; netCDF's dims are named here, since h5py does not write them."""
    group = xr.open_dataset(path, engine="h5netcdf", group="conditional", phony_dims="access")
    names = dict(zip(group["probs"].dims, ("chain", "draw", "obs_id", "class_id"), strict=True))
    group = group.rename(names)
    if not way["entropy"]:
        group = group.drop_vars("entropy")
    group = group.chunk(way["chunks"]) if way["chunks"] else group
    return xr.DataTree.from_dict({"conditional": group.load() if way.get("load") else group})


def measure(path: Path, name: str) -> dict[str, Any]:
    """Return seconds of a decomposition and of three passes over the array, and the peak memory of the process."""
    tree = opened(path, WAYS[name])
    start = time.perf_counter()
    parts = decompose(tree)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    for _ in range(3):
        for values, _ in tiles(tree["conditional"]["probs"]):
            values.sum()
    passes = time.perf_counter() - start
    gap = float(abs(parts["total"] - parts["aleatoric"] - parts["epistemic"]).max())
    return {"way": name, "seconds": seconds, "three_passes": passes, "peak_gib": peak, "gap": gap}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--way", choices=WAYS, help="measure this one only, on a file that is there")
    arguments = parser.parse_args()
    path = arguments.folder / f"probs_{arguments.draws}_{arguments.rows}_{arguments.dtype}.nc"
    if arguments.way:
        print(json.dumps(measure(path, arguments.way)))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write(path, arguments.draws, arguments.rows, arguments.dtype)
    found = [in_process(name) for name in WAYS]
    for one in found:
        print("{way:28} {seconds:7.1f} s, three passes {three_passes:6.1f} s, peak {peak_gib:.2f} GiB".format(**one))
    sizes = {"draws": arguments.draws, "rows": arguments.rows, "classes": CLASSES, "dtype": arguments.dtype}
    runs = {f"{one['way']}: {what}": [one[what]] for one in found for what in ("seconds", "three_passes")}
    peaks = {one["way"]: one["peak_gib"] for one in found}
    save("decompose", "s", runs, "lazy, with entropy: three_passes", sizes=sizes, peak_gib=peaks)


def in_process(way: str) -> dict[str, Any]:
    """Measure one way in a process of its own, whose peak memory is then that of this way alone."""
    command = [sys.executable, "-m", "benchmarks.decompose", *sys.argv[1:], "--way", way]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


if __name__ == "__main__":
    main()
