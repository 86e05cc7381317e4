"""Processor seconds of one model by every method that people swap to, as typed: the first fit of all, and later ones.

Run: python -m benchmarks.swapping [rounds] ["METHOD;METHOD"] [engine ...]

Each round is two processes for each method, model and engine: "first" has empty caches, and what a compiler takes counts;
"process" is the first fit of the next process, which finds the code on disk; "second" is a second fit in one process, to other
data of the same shape. Libraries are imported before the clock starts. Without an engine, as typed.
"""

import json
import statistics
import sys
import tempfile
import warnings
from typing import Any

from benchmarks.pairs import RESULTS, in_process, processor_seconds, write

METHODS = (
    "NUTS", "MAP", "Laplace", "MeanFieldVI", "FullRankVI", "FlowVI", "Pathfinder", "SGHMC", "DeepEnsemble", "SWAG"
)  # fmt: skip
MODELS = ("regression", "network")
RECORD, AS_TYPED = "swapping", "auto"


def problem(name: str) -> tuple[Any, Any, Any]:
    """Return a model and data of 80 rows: a regression of ten parameters, or a network of 51 weights."""
    import pyro
    import pyro.distributions as dist
    import torch

    import bnnzoo as bz

    generator = torch.Generator().manual_seed(0)

    def regression(x: torch.Tensor, y: torch.Tensor) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(9), 1.0).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ b, sigma), obs=y)

    x = torch.randn(80, 9 if name == "regression" else 3, generator=generator)
    noise = 0.3 * torch.randn(80, generator=generator)
    if name == "regression":
        return regression, x, x @ torch.linspace(-1, 1, 9) + noise
    net = torch.nn.Sequential(torch.nn.Linear(3, 10), torch.nn.Tanh(), torch.nn.Linear(10, 1))
    model = bz.models.supervised(net, bz.priors.fan_in(1.0), bz.likelihoods.gaussian(0.3))
    return model, x, x[:, 0].sin() + x[:, 1] * x[:, 2] + noise


def run_once(method: str, name: str, engine: str) -> dict[str, float]:
    """Return the processor seconds of two fits in this process."""
    import bnnzoo as bz

    model, x, y = problem(name)
    seconds = []
    warnings.simplefilter("ignore")
    for each in range(2):
        before = processor_seconds()
        bz.fit(model, getattr(bz, method)(), x, y + 0.1 * each, seed=each, progress=False, engine=engine)
        seconds.append(processor_seconds() - before)
    return {"first": seconds[0], "second": seconds[1]}


def main(rounds: int = 5, methods: str = ";".join(METHODS), *engines: str) -> None:
    """Run all, and write the medians; methods that are not named keep their place in the record."""
    record = RESULTS / f"{RECORD}.json"
    table: dict[str, Any] = json.loads(record.read_text())["fits"] if record.exists() else {}
    for name in MODELS:
        for method in methods.split(";"):
            for engine in engines or (AS_TYPED,):
                found = []
                for _ in range(rounds):
                    with tempfile.TemporaryDirectory() as folder:
                        arguments = ("--run", method, name, engine)
                        new, later = (
                            in_process("benchmarks.swapping", *arguments, XDG_CACHE_HOME=folder) for _ in range(2)
                        )
                        found.append({**new, "process": later["first"]})
                medians = {fit: statistics.median(each[fit] for each in found) for fit in found[0]}
                print(f"{name:12} {method:14} {engine:8} {medians}", flush=True)
                if engine == AS_TYPED:
                    table[f"{method}, {name}"] = medians
                    write(RECORD, {"unit": "processor seconds of a fit", "rounds": rounds, "fits": table})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(run_once(*sys.argv[2:])))
    else:
        main(*map(int, sys.argv[1:2]), *sys.argv[2:])
