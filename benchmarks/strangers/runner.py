"""Every model fitted by every method as typed, in subprocesses with a limit of time for each fit."""

import functools
import json
import os
import select
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.strangers.catalogue import STRANGERS
from benchmarks.strangers.namespaces import pyro_names
from benchmarks.strangers.references import described

METHODS = ("NUTS", "MAMS", "Laplace", "MeanFieldVI", "FullRankVI")
FITS = Path(__file__).parents[1] / "results" / "strangers_fits.jsonl"
NUM_DRAWS = 20_000
"""Draws by which approximations are described: sds of skewed sites by 1,000 are off by a tenth."""
LIMIT = 240
"""Seconds a fit may take before its process is ended."""


def run(
    names: list[str], methods: Iterable[str] = METHODS, fits: Path = FITS, module: str = "benchmarks.strangers"
) -> None:
    """Fit what has not been fitted yet, a line of JSON for each fit."""
    done = {(each["model"], each["method"]) for each in stored(fits)}
    todo = [(name, method) for name in names for method in methods if (name, method) not in done]
    while todo:
        for line in answers(tuple(todo), module):
            todo.pop(0)
            with fits.open("a") as file:
                file.write(json.dumps(line) + "\n")
            said = line.get("error") or line.get("warnings")
            print(line["model"], line["method"], said, line.get("cpu_seconds"), flush=True)


def answers(todo: tuple[tuple[str, str], ...], module: str) -> Any:
    """Yield a line for each of the fits until one runs out of time or ends its process."""
    command = [sys.executable, "-m", module, "worker", json.dumps(todo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        extra = 30
        for name, method in todo:
            ready, _, _ = select.select([process.stdout], [], [], LIMIT + extra)
            line = os.read(process.stdout.fileno(), 1 << 22) if ready else b""
            while line and not line.endswith(b"\n"):
                more = os.read(process.stdout.fileno(), 1 << 22)
                line = line + more if more else b""
            if not line:
                process.kill()
                what = f"died: {process.wait()}" if ready else f"more than {LIMIT} seconds"
                yield {"model": name, "method": method, "error": what}
                return
            extra = 0
            yield json.loads(line)


def work(todo: list[tuple[str, str]], fitted: Callable[[str, str], dict[str, Any]]) -> None:
    """Fit one after another, and print a line for each."""
    out, sys.stdout = sys.stdout, sys.stderr
    for name, method in todo:
        out.write(json.dumps(fitted(name, method)) + "\n")
        out.flush()
        select.select([], [], [], 0.05)


def fitted(name: str, method: str) -> dict[str, Any]:
    """Fit a model as a user types it, and return what came out and what was said."""
    import torch

    import bnnzoo as bz

    stranger, found = STRANGERS[name], {"model": name, "method": method}
    model = functools.wraps(stranger.text)(functools.partial(stranger.text, pyro_names()))
    del model.__wrapped__
    data = [torch.as_tensor(each) for each in stranger.data]
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            posterior = bz.fit(model, getattr(bz, method)(), *data, seed=0)
        except Exception as error:
            return found | {"error": f"{type(error).__name__}: {error}"[:500]}
    found |= {"wall_seconds": round(time.perf_counter() - wall, 2), "cpu_seconds": round(time.process_time() - cpu, 2)}
    found["warnings"] = sorted(
        {each.category.__name__ for each in caught if each.category.__module__.startswith("bnnzoo")}
    )
    found["sentences"] = [str(each.message)[:300] for each in caught]
    found["gradients"] = posterior.info.num_gradients
    try:
        tree = bz.to_datatree(posterior)
        if method in ("NUTS", "MAMS"):
            found |= described({site: tree["posterior"][site].values for site in tree["posterior"].data_vars})
        else:
            found["pareto_k"] = round(float(bz.diagnostics.psis(tree).pareto_k), 3)
            theta = posterior.draws(NUM_DRAWS).flatten(0, 1)[None]
            values = posterior.density.constrain(theta)
            found |= described({site: value.numpy() for site, value in values.items()})
    except Exception as error:
        found["error"] = f"after the fit: {type(error).__name__}: {error}"[:500]
    return found


def stored(fits: Path = FITS) -> list[dict[str, Any]]:
    """Return the lines that are there."""
    return [json.loads(line) for line in fits.read_text().splitlines()] if fits.exists() else []
