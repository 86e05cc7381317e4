"""Which method is calibrated: simulation-based calibration of seventeen methods on ten models, which goes on where it stopped.

python -m benchmarks.calibrated FOLDER SIMULATIONS ["METHOD;METHOD"] ["MODEL;MODEL"]

FOLDER takes the ranks of each pair of method and model; a call with the same folder goes on from them. Pairs whose first twenty
simulations take long wait until all others are done. The record is written after each pair, with those of earlier calls, in any
folder.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

import bnnzoo as bz
from benchmarks.pairs import RESULTS, write
from bnnzoo.core.method import Method
from bnnzoo.validation import sbc, sbc_verdict

ROWS, RECORD = 24, "calibrated"
generator = torch.Generator().manual_seed(0)
X = torch.randn(ROWS, 2, generator=generator, dtype=torch.float64)
GROUP, ZEROS = torch.arange(ROWS) % 6, torch.zeros(ROWS, dtype=torch.float64)


def _line() -> tuple[Tensor, Tensor]:
    return pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))


def linear(x: Tensor, y: Tensor) -> None:
    a, b = _line()
    s = pyro.sample("s", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a + x @ b, s), obs=y)


def logistic(x: Tensor, y: Tensor) -> None:
    a, b = _line()
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=a + x @ b), obs=y)


def poisson(x: Tensor, y: Tensor) -> None:
    a, b = _line()
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Poisson((1.0 + 0.5 * (a + x @ b)).exp()), obs=y)


def centred(g: Tensor, y: Tensor) -> None:
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.HalfNormal(1.0))
    with pyro.plate("groups", 6):
        effect = pyro.sample("effect", dist.Normal(mu, tau))
    with pyro.plate("rows", len(g)):
        pyro.sample("y", dist.Normal(effect[g], 1.0), obs=y)


def non_centred(g: Tensor, y: Tensor) -> None:
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.HalfNormal(1.0))
    with pyro.plate("groups", 6):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(g)):
        pyro.sample("y", dist.Normal(mu + tau * z[g], 1.0), obs=y)


def ordinal(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    first = pyro.sample("first", dist.Normal(-1.0, 1.0))
    gap = pyro.sample("gap", dist.Exponential(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.OrderedLogistic(x @ b, torch.stack([first, first + gap])), obs=y)


def mixture(y: Tensor) -> None:
    w = pyro.sample("w", dist.Beta(2.0, 2.0))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-2.0, 2.0]), 0.5).to_event(1))
    with pyro.plate("rows", len(y)):
        parts = dist.Normal(mu, 0.7)
        pyro.sample("y", dist.MixtureSameFamily(dist.Categorical(torch.stack([w, 1 - w])), parts), obs=y)


def gaussian_process(x: Tensor, y: Tensor) -> None:
    length, scale = pyro.sample("length", dist.LogNormal(0.0, 0.5)), pyro.sample("scale", dist.HalfNormal(1.0))
    noise = pyro.sample("noise", dist.HalfNormal(0.5))
    apart = (x[:, None, 0] - x[None, :, 0]) / length
    covariance = scale**2 * (-0.5 * apart**2).exp() + (noise**2 + 1e-4) * torch.eye(len(x))
    pyro.sample("y", dist.MultivariateNormal(torch.zeros(len(x)), covariance), obs=y)


def network(hidden: int) -> Callable[..., Any]:
    net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 1)).double()
    return bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.3))


MODELS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "linear": (linear, (X, ZEROS)),
    "logistic": (logistic, (X, ZEROS)),
    "Poisson": (poisson, (X, ZEROS)),
    "hierarchy, centred": (centred, (GROUP, ZEROS)),
    "hierarchy, non-centred": (non_centred, (GROUP, ZEROS)),
    "ordinal": (ordinal, (X, ZEROS.long())),
    "mixture": (mixture, (ZEROS,)),
    "network of 5 units": (network(5), (X, ZEROS)),
    "network of 20 units": (network(20), (X, ZEROS)),
    "Gaussian process": (gaussian_process, (X, ZEROS)),
}

CHAIN = {"num_chains": 1, "num_warmup": 500, "num_draws": 500}
LOCKSTEP = {"num_chains": 4, "num_warmup": 500, "num_draws": 500}
METHODS: dict[str, Any] = {
    "NUTS": bz.NUTS(**CHAIN),
    "HMC": bz.HMC(**CHAIN),
    "Laplace": bz.Laplace(),
    "HierarchicalLaplace": bz.HierarchicalLaplace(),
    "MeanFieldVI": bz.MeanFieldVI(),
    "FullRankVI": bz.FullRankVI(),
    "Pathfinder": bz.Pathfinder(),
    "MAMS": bz.MAMS(**LOCKSTEP),
    "ChEESHMC": bz.ChEESHMC(**LOCKSTEP),
    "MCLMC": bz.MCLMC(**LOCKSTEP),
    "FlowVI": bz.FlowVI(),
    "SGHMC": bz.SGHMC(),
    "StochasticMCLMC": bz.StochasticMCLMC(),
    "SWAG": bz.SWAG(),
    "MultiSWAG": bz.MultiSWAG(),
    "MCDropout": bz.MCDropout(rate=0.1),
    "DeepEnsemble": bz.DeepEnsemble(num_members=19),
}
FIRST, LONG = 20, 20.0
"""Simulations after which pairs that take long are put off, and how many seconds of processor time these may take."""

NUM_DRAWS = 19  # as many as a deep ensemble has members


def calibrated(
    model: Callable[..., Any],
    data: Iterable[Any],
    method: Method,
    number: int,
    path: Path,
    dtype: torch.dtype | None = None,
) -> dict[str, Any]:
    """Return what the calibration of a method on a model found; the sentence of a refusal where there is none."""
    began, options = time.process_time(), {"num_draws": NUM_DRAWS, "dtype": dtype, "path": path, "progress": False}
    try:
        ranks = sbc(model, method, *data, num_simulations=number, **options)
    except (ValueError, TypeError, FloatingPointError) as error:
        return {"refused": str(error).partition(". ")[0]}
    table = sbc_verdict(ranks)
    wrong = table[~table["uniform"]].sort_values("p")
    return {
        "simulations": number,
        "quantities": len(table),
        "off": len(wrong),
        "findings": sorted(wrong["finding"].unique()),
        "worst": {"quantity": str(table["p"].idxmin()), "p": float(table["p"].min())},
        "coverage_of_half": float(table["coverage"].mean()),
        "sentence": wrong["sentence"].iloc[0] if len(wrong) else "",
        "seconds": time.process_time() - began,
    }


def _chosen(names: dict[str, Any], place: int) -> list[str]:
    return sys.argv[place].split(";") if len(sys.argv) > place else [*names]


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    record = RESULTS / f"{RECORD}.json"
    cells: dict[str, Any] = json.loads(record.read_text())["cells"] if record.exists() else {}
    pairs = [(method, model) for method in _chosen(METHODS, 3) for model in _chosen(MODELS, 4)]
    put_off: list[tuple[float, str, str]] = []

    def make(method: str, model: str, simulations: int, spent: float = 0.0) -> float:
        function, data = MODELS[model]
        found = calibrated(function, data, METHODS[method], simulations, folder / f"{method}-{model}.sbc")
        if "seconds" in found:  # ranks that an earlier call has made take no time
            found["seconds"] = max(found["seconds"] + spent, cells.get(f"{method}, {model}", {}).get("seconds", 0.0))
        known = cells.get(f"{method}, {model}", {})
        if found.get("simulations", number) >= known.get("simulations", 0):  # those of an earlier call may be more
            cells[f"{method}, {model}"] = found
        print(f"{method:20} {model:24} {found}", flush=True)
        ordered = {name: cells[name] for name in (f"{a}, {b}" for a in METHODS for b in MODELS) if name in cells}
        write(RECORD, {"unit": "ranks of truths among 19 draws", "cells": ordered})
        return float(found.get("seconds", 0.0))

    for method, model in pairs:
        seconds = make(method, model, min(number, FIRST))
        if seconds > LONG:
            put_off.append((seconds, method, model))
        elif seconds and number > FIRST:
            make(method, model, number, seconds)
    for seconds, method, model in sorted(put_off):
        make(method, model, number, seconds)


if __name__ == "__main__":
    main()
