"""Processes that fit a model again and again on request, in an environment of their own; needs NumPy alone."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.pairs import processor_seconds

__all__ = ["CHAINS", "Points", "Sampled", "Worker", "serve"]

CHAINS = 4

type Points = list[dict[str, Any]]


class Sampled(NamedTuple):
    """Draws of constrained sites ``[C, S, ...]``, and what they took."""

    draws: dict[str, NDArray[np.floating]]
    gradients: int
    all_gradients: int
    divergent: int
    warmup: int


def serve(
    sampler: Callable[[str], Callable[[str, int], Sampled]],
    log_density: Callable[[str, Points | None], tuple[Points, list[float]]],
) -> None:
    """Answer requests of :class:`Worker`, a line each, until there are no more."""
    name, folder, answers = sys.argv[1], Path(sys.argv[2]), sys.stdout
    with redirect_stdout(sys.stderr):
        sample = sampler(name)
        for line in sys.stdin:
            request = json.loads(line)
            if "points" in request:
                points, values = log_density(name, request["points"])
                found: dict[str, Any] = {"points": points, "values": values}
            else:
                start, processor = time.perf_counter(), processor_seconds()
                drawn = sample(request["kind"], request["seed"])
                found = {"seconds": time.perf_counter() - start, "processor": processor_seconds() - processor}
                np.savez(folder / "draws.npz", **drawn.draws)  # type: ignore[arg-type]
                found |= drawn._asdict() | {"draws": str(folder / "draws.npz")}
            print(json.dumps(found), file=answers, flush=True)


class Worker:
    """A process with empty caches in ``folder``, on all cores and without settings of threads, as a user's is.

    Parameters
    ----------
    python : str
        Interpreter of its environment.
    module : str
        What calls :func:`serve`.
    name : str
        The model.
    folder : Path
    """

    def __init__(self, python: str, module: str, name: str, folder: Path) -> None:
        folder.mkdir()
        variables = {key: value for key, value in os.environ.items() if not key.endswith(("_NUM_THREADS", "_FLAGS"))}
        caches = {
            "XDG_CACHE_HOME": str(folder),
            "NUMBA_CACHE_DIR": str(folder / "numba"),
            "PYTENSOR_FLAGS": f"base_compiledir={folder / 'pytensor'}",
        }
        self._process = subprocess.Popen(
            [python, "-m", module, name, str(folder)],
            env=variables | caches,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("w"),
            text=True,
        )
        self._errors = folder / "errors"

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(self._errors.read_text()[-3000:])
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
