"""A saved posterior that predicts as a service does: latency, throughput and memory, in threads and in processes.

Run: python -m benchmarks.serving

A network of about 500 weights, loaded from a file, 1,000 draws, requests of one row and of 1,000 rows, each of other values.
``tree`` asks for the whole tree, ``served`` for predictions and their moments alone. Seconds are wall time of ``predict``.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.pairs import write

SERVED = {"keep": ("predictions", "conditional")}
WARM_UP = 4


def model():
    """Return a network of 505 weights."""
    import bnnzoo as bz

    return bz.models.supervised(bz.models.mlp(8, (24, 11)), bz.priors.fan_in(2.0), bz.likelihoods.gaussian())


def fit(path: Path) -> None:
    """Fit and save."""
    import bnnzoo as bz

    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 8))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=500)
    bz.fit(model(), bz.MeanFieldVI(), x, y, progress=False).save(path)


def mebibytes() -> float:
    """Return the most memory that this program has held; ``getrusage`` counts that of its parent, too."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) / 2**10


class Service:
    """A posterior and requests of some rows."""

    def __init__(self, path: Path) -> None:
        import bnnzoo as bz

        start = time.perf_counter()
        self._predict, self._posterior = bz.predict, bz.load(path, model())
        self.load_seconds = time.perf_counter() - start

    def seconds(self, rows: int, seed: int, options: dict) -> float:
        """Return how long one request takes."""
        x = np.random.default_rng(seed).normal(size=(rows, 8))
        start = time.perf_counter()
        self._predict(self._posterior, x, num_draws=1000, **options)
        return time.perf_counter() - start

    def measured(self, rows: int, calls: int, threads: int, options: dict) -> dict[str, float]:
        """Return the latency of requests after warm-up, and how many are answered in a second."""
        for seed in range(WARM_UP):
            self.seconds(rows, seed, options)
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            found = list(pool.map(lambda seed: self.seconds(rows, seed, options), range(calls)))
            taken = time.perf_counter() - start
        p50, p99 = np.quantile(found, [0.5, 0.99])
        return {"p50": float(p50), "p99": float(p99), "per_second": calls / taken}


def worker(path: str, rows: str, calls: str) -> None:
    """Answer requests in a process of its own, and print when it began and ended."""
    service = Service(Path(path))
    service.measured(int(rows), 1, 1, SERVED)
    sys.stdin.readline()  # all begin together
    start = time.time()
    for seed in range(int(calls)):
        service.seconds(int(rows), seed, SERVED)
    print(start, time.time(), mebibytes())


def in_processes(path: Path, number: int, rows: int, calls: int) -> dict[str, float]:
    """Return how many requests so many processes answer in a second, and the memory of each."""
    command = [sys.executable, "-m", "benchmarks.serving", "--worker", str(path), str(rows), str(calls)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(number)
    ]
    time.sleep(20)  # all have loaded and warmed up
    for each in started:
        each.stdin.write("\n")
        each.stdin.flush()
    times = [tuple(map(float, each.communicate()[0].split())) for each in started]
    first, last = min(begin for begin, *_ in times), max(end for _, end, _ in times)
    return {"per_second": number * calls / (last - first), "mebibytes": max(memory for *_, memory in times)}


def main() -> None:
    """Measure and write the results."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.bnn"
        fit(path)
        service, found = Service(path), {}
        for rows, calls in ((1, 300), (1000, 16)):
            found[f"first_call_{rows}"] = service.seconds(rows, 0, SERVED)
            for threads in (1, 2, 4, 8):
                found[f"served_{rows}_threads_{threads}"] = service.measured(rows, calls, threads, SERVED)
        found["tree_1_threads_1"] = service.measured(1, 300, 1, {})
        found["load"] = service.load_seconds
        found["mebibytes"] = mebibytes()
        for number in (1, 2):
            found[f"served_1_processes_{number}"] = in_processes(path, number, 1, 300)
    write("serving", found)


if __name__ == "__main__":
    worker(*sys.argv[2:]) if "--worker" in sys.argv else main()
