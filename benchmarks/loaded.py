"""NUTS on a regression network as a user types it, on a quiet machine and with one other busy process on each core.

Run: python -m benchmarks.loaded [warmup] [draws] [pairs]

Default arguments, no environment variable; seconds of wall time from the call of ``fit`` to its return, compilation included.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.pairs import as_typed, runs_in_turn, save


@contextmanager
def busy(num_processes: int) -> Iterator[None]:
    """Keep so many processes computing."""
    others = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(num_processes)]
    for each in others:
        each.start()
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.join()


def _spin() -> None:
    number = 0
    while True:
        number += 1


def fit(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Return the seconds of one fit."""
    import bnnzoo as bz
    from benchmarks.regression import problem, pyro_model

    p = problem()
    start = time.perf_counter()
    bz.fit(pyro_model(p), bz.NUTS(num_warmup=warmup, num_draws=draws), p.x, p.y, seed=seed)
    return {"seconds": time.perf_counter() - start}


def main(warmup: int = 100, draws: int = 100, pairs: int = 5) -> None:
    """Run pairs of a quiet and a loaded fit and write what they took."""

    def run(which: str, seed: int) -> dict[str, float]:
        with busy((os.cpu_count() or 1) if which == "loaded" else 0):
            return as_typed("benchmarks.loaded", "--run", warmup, draws, seed)

    found, _ = runs_in_turn(["quiet", "loaded"], run, "seconds", pairs)
    save("loaded", "seconds", found, "quiet", warmup=warmup, draws=draws, others=os.cpu_count())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(fit(*map(int, sys.argv[2:]))))
    else:
        main(*map(int, sys.argv[1:]))
