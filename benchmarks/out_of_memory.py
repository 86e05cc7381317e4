"""One million rows from a memory-mapped file: how much memory training and prediction add to the process.

    python benchmarks/out_of_memory.py [rows] [draws]

Each part runs in a process of its own, whose peak memory (pages of mapped files included) is compared with that before.
Needs zarr, and about 6 GiB of disk for a million rows and 500 draws of y, its mean and its variance.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "out_of_memory.json"
COLUMNS = 20
PARTS = ("mfvi", "sghmc", "store", "measure")


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def write_data(folder, rows):
    import numpy as np

    generator = np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, COLUMNS))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (rows,))
    for start in range(0, rows, 50_000):
        part = generator.normal(size=x[start : start + 50_000].shape)
        x[start : start + 50_000] = part
        y[start : start + 50_000] = np.sin(part[:, 0]) + 0.1 * generator.normal(size=len(part))


def run_part(part, folder, draws):
    import numpy as np

    import bnnzoo as bz

    model = bz.models.supervised(
        bz.models.mlp(COLUMNS, (20,)), prior=bz.priors.fan_in(), likelihood=bz.likelihoods.gaussian(0.1)
    )
    methods = {
        "mfvi": bz.MeanFieldVI(num_steps=1000, batch_size=256, num_particles=1),
        "sghmc": bz.SGHMC(num_chains=4, num_warmup=100, num_draws=100),
    }
    small = np.zeros((1000, COLUMNS), np.float32)
    warm = bz.fit(
        model, bz.MeanFieldVI(num_steps=20, batch_size=256, num_particles=1), small, small[:, 0], progress=False
    )
    bz.measure_predictions(warm, bz.uncertainty.decompose, small, num_draws=10)  # imports and compilers count as before
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    before, began = peak(), time.perf_counter()
    if part in methods:
        posterior = bz.fit(model, methods[part], x, y, progress=False)
        print(posterior, file=sys.stderr)
    elif part == "store":
        keep = ("predictions", "conditional/mean", "conditional/variance")
        tree = bz.predict(warm, x, num_draws=draws, store=folder / "run.zarr", keep=keep)
        bz.uncertainty.decompose(tree)
    else:
        bz.measure_predictions(warm, bz.uncertainty.decompose, x, num_draws=draws, keep=("conditional",))
    found = {"added_gib": peak() - before, "before_gib": before, "seconds": time.perf_counter() - began}
    print(json.dumps({key: round(value, 3) for key, value in found.items()}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    parser.add_argument("draws", type=int, nargs="?", default=500)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--folder", type=Path, help="where x.npy and y.npy are, or are written")
    parser.add_argument("--write", action="store_true", help="write the data and stop")
    args = parser.parse_args()
    if args.write:
        write_data(args.folder, args.rows)
        return
    if args.part:
        run_part(args.part, args.folder, args.draws)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, args.rows)
        found = {"rows": args.rows, "columns": COLUMNS, "draws": args.draws}
        for part in PARTS:
            command = [sys.executable, __file__, str(args.rows), str(args.draws), "--part", part, "--folder", name]
            run = subprocess.run(command, check=True, capture_output=True, text=True)
            found[part] = json.loads(run.stdout.splitlines()[-1])
            print(part, found[part], flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
