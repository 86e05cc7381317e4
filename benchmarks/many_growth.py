"""Seconds and memory of ``bz.fit_many`` as fits grow in number, as typed: each number in a process of its own.

Run: python -m benchmarks.many_growth ["METHOD;METHOD"]

A regression of three parameters, 50 rows. Methods that are not named keep their place in the record; seconds include tracing and
compiling, not imports. Memory is the most that the process has held. python -m benchmarks.plot_many_growth draws the result.
"""

import json
import sys
import time
import warnings
from typing import Any

import torch

import bnnzoo as bz
from benchmarks.many_fits import regression
from benchmarks.memory import mebibytes
from benchmarks.pairs import RESULTS, as_typed, write

METHODS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "NUTS": (bz.NUTS(num_chains=1, num_warmup=300, num_draws=300), (1, 10, 100, 1000, 10_000)),
    "Laplace": (bz.Laplace(), (1, 10, 100, 1000)),
    "MeanFieldVI": (bz.MeanFieldVI(), (1, 10, 100, 1000)),
}


def run(name: str, number: int) -> None:
    """Make so many fits, and print what they took."""
    warnings.simplefilter("ignore")
    model, x, _ = regression(2)
    generator = torch.Generator().manual_seed(0)
    datasets = [(x, torch.randn(len(x), generator=generator)) for _ in range(number)]
    clock, processor = time.perf_counter(), time.process_time()
    made = sum(1 for _ in bz.fit_many(model, METHODS[name][0], datasets))
    assert made == number
    found = {"clock": time.perf_counter() - clock, "processor": time.process_time() - processor}
    print(json.dumps(found | {"memory": mebibytes("VmHWM")}))


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], int(sys.argv[3]))
        return
    record = RESULTS / "many_growth.json"
    for name in sys.argv[1].split(";") if len(sys.argv) > 1 else METHODS:
        found = {str(each): as_typed("benchmarks.many_growth", "run", name, each) for each in METHODS[name][1]}
        table = json.loads(record.read_text())["methods"] if record.exists() else {}
        write("many_growth", {"unit": "seconds; memory in MiB", "methods": table | {name: found}})


if __name__ == "__main__":
    main()
