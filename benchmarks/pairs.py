"""Measuring one thing against another in one run: in turn, at least five times, and the ratio of medians."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = [
    "ONE_THREAD",
    "RESULTS",
    "StepClock",
    "as_typed",
    "in_process",
    "in_turn",
    "microseconds",
    "processor_seconds",
    "runs_in_turn",
    "save",
    "write",
]

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
"""What ``XLA_FLAGS`` must hold for XLA to stay on one thread."""

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("bnnzoo", "torch", "pyro-ppl", "numpyro", "jax", "blackjax", "nutpie", "numpy", "laplace-torch")


class StepClock:
    """What a fit takes for its progress bar: it notes at which processor time how many steps were done."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, float]] = []

    def start(self, description: str, total: int) -> None:
        """Forget the stage before."""
        self._noted = []

    def update(self, step: int, **fields: float) -> None:
        """Note the time."""
        self._noted.append((step, time.process_time()))

    def stop(self) -> None:
        """Ignore the end."""

    @property
    def microseconds(self) -> float:
        """Processor time of a step of the last stage, between the first and the last time noted."""
        (first, began), (last, ended) = self._noted[0], self._noted[-1]
        return (ended - began) / (last - first) * 1e6


def microseconds(call: Callable[[], Any], num_calls: int = 200) -> float:
    """Return the mean processor time of one call in microseconds, over ``num_calls`` of them, whatever else the machine does."""
    start = time.process_time()
    for _ in range(num_calls):
        call()
    return (time.process_time() - start) / num_calls * 1e6


def processor_seconds() -> float:
    """Return the processor time of this process so far and of those it waited for, such as a C++ compiler."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def in_process(module: str, *arguments: Any, **environment: str) -> dict[str, float]:
    """Run a benchmark's module in a process of its own, on one thread, and return the numbers it prints last, as JSON."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    output = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    print(*arguments[1:], {key: round(value, 3) for key, value in found.items()}, flush=True)
    return found


def as_typed(module: str, *arguments: Any) -> dict[str, float]:
    """Run a benchmark's module as a user would, on all cores and without environment variables; return what it prints last."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    variables = {name: value for name, value in os.environ.items() if not name.endswith(("_NUM_THREADS", "_FLAGS"))}
    output = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    print(*arguments[1:], {key: round(value, 3) for key, value in found.items()}, flush=True)
    return found


def in_turn(candidates: Mapping[str, Callable[[], float]], num_pairs: int = 5) -> dict[str, list[float]]:
    """Run every candidate once a round, for ``num_pairs`` rounds, and return what each of them measured."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(num_pairs):
        for name, measure in candidates.items():
            found[name].append(measure())
    return found


def runs_in_turn(
    names: Iterable[str], run: Callable[[str, int], dict[str, float]], measure: str, num_pairs: int = 5
) -> tuple[dict[str, list[float]], dict[str, list[dict[str, float]]]]:
    """Run every name once a round with the round as its seed; return one of the numbers measured, and all of them."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}

    def measured(name: str) -> float:
        runs[name].append(run(name, len(runs[name])))
        return runs[name][-1][measure]

    return in_turn({name: partial(measured, name) for name in runs}, num_pairs), runs


def save(name: str, unit: str, found: Mapping[str, list[float]], reference: str, **facts: Any) -> None:
    """Print medians and their ratios to ``reference``, and write them next to versions and machine as JSON."""
    medians = {key: statistics.median(values) for key, values in found.items()}
    ratios = {key: value / medians[reference] for key, value in medians.items()}
    for key, value in medians.items():
        print(f"{name}: {key:24s} {value:12.4g} {unit}   x {ratios[key]:.3f} of {reference}", flush=True)
    measured = {"unit": unit, "runs": dict(found), "medians": medians, "ratios": ratios, "reference": reference}
    write(name, measured | {"facts": facts})


def write(name: str, found: Mapping[str, Any]) -> None:
    """Write what was found next to versions and machine, as JSON, whole or not at all."""
    machine = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    RESULTS.mkdir(exist_ok=True)
    temporary = RESULTS / f".{name}.json.partial"
    temporary.write_text(json.dumps({"name": name, **found, "versions": _versions(), "machine": machine}, indent=1))
    temporary.replace(RESULTS / f"{name}.json")


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
