"""Time of one fit among many: simulation-based calibration as typed, and beside a loop of fits that know of no other.

python -m benchmarks.many_fits [simulations of a calibration] ["CASE;CASE"]

Cases that are not named keep their place in the record. Besides the calibrations there are "reloo", each row of the diabetes data
left out; "folds", ten folds of a network beside one fit; "memory", the resident memory after one fit and after as many as there
are simulations; "futures", pasts of a series by one program and by one for each length; and calibrations of two networks.
"""

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import bnnzoo as bz
from benchmarks.pairs import RESULTS, in_process, write
from bnnzoo.core.model.density import build_density
from bnnzoo.validation.simulated_data import places_of_outcomes
from bnnzoo.validation.simulations import Simulation, ranks_of

ROUNDS, PAIRED = 5, 10
"""Rounds, and simulations in each, of the comparison with fits one by one."""

CALIBRATIONS = 3
"""How often a whole calibration, or all refits, are timed."""


def regression(num_inputs: int) -> tuple[Callable[..., Any], Tensor, Tensor]:
    """Return a linear model with one noise scale, and 50 rows of data."""

    def model(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(num_inputs), 1.0).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ b, sigma), obs=y)

    generator = torch.Generator().manual_seed(0)
    return model, torch.randn(50, num_inputs, generator=generator), torch.randn(50, generator=generator)


def network(num_inputs: int, hidden: int, num_rows: int) -> tuple[Callable[..., Any], Tensor, Tensor]:
    """Return a network with one hidden layer and known noise, and the rows of its data."""
    net = torch.nn.Sequential(torch.nn.Linear(num_inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1))
    model = bz.models.supervised(net, bz.priors.fan_in(1.0), bz.likelihoods.gaussian(scale=0.3))
    generator = torch.Generator().manual_seed(0)
    return model, torch.randn(num_rows, num_inputs, generator=generator), torch.zeros(num_rows)


def among_many(model: Any, method: Any, x: Tensor, y: Tensor, number: int, seed: int) -> float:
    """Return the seconds of processor time of one simulation, by `bz.validation.sbc`."""
    began = time.process_time()
    bz.validation.sbc(model, method, x, y, num_simulations=number, seed=seed, progress=False)
    return (time.process_time() - began) / number


def one_by_one(model: Any, method: Any, x: Tensor, y: Tensor, number: int, seed: int) -> float:
    """Return the same for simulations each of which is fitted as if it were the only one."""
    density = build_density(model, x, y)
    places = places_of_outcomes(density)
    began = time.process_time()
    for each in range(number):
        ranks_of([Simulation(method, places, 99, seed=seed * 1_000_003 + each)], density)
    return (time.process_time() - began) / number


THREE, TEN = partial(regression, 2), partial(regression, 9)
CASES: dict[str, tuple[Callable[[], tuple[Callable[..., Any], Tensor, Tensor]], Any]] = {
    "NUTS, 3 parameters, 300 + 300": (THREE, bz.NUTS(num_chains=1, num_warmup=300, num_draws=300)),
    "NUTS, 10 parameters, 500 + 500": (TEN, bz.NUTS(num_chains=1, num_warmup=500, num_draws=500)),
    "HMC, 3 parameters, 300 + 300": (THREE, bz.HMC(num_chains=1, num_warmup=300, num_draws=300)),
    "MeanFieldVI, 3 parameters": (THREE, bz.MeanFieldVI()),
    "FullRankVI, 3 parameters": (THREE, bz.FullRankVI()),
    "Laplace, 3 parameters": (THREE, bz.Laplace()),
    "MAMS, 3 parameters, 4 chains, 500 + 500": (THREE, bz.MAMS(num_chains=4, num_warmup=500, num_draws=500)),
}
NETWORKS = {
    "NUTS, 51 weights": (partial(network, 3, 10, 50), bz.NUTS(num_chains=1, num_warmup=500, num_draws=500)),
    "NUTS, 501 weights": (partial(network, 8, 50, 300), bz.NUTS(num_chains=4, num_warmup=500, num_draws=500)),
}
"""Whose calibrations are timed once, and not beside fits one by one."""


def whole(model: Any, method: Any, x: Tensor, y: Tensor, number: int, seed: int) -> tuple[float, float]:
    """Return seconds on the clock and of processor time of a calibration, its tracing included."""
    return _clock_and_processor(
        lambda: bz.validation.sbc(model, method, x, y, num_simulations=number, seed=seed, progress=False)
    )


def calibrations(name: str, number: int) -> dict[str, Any]:
    """Return the seconds of whole calibrations, and of single fits among many and alone."""
    problem, method = CASES[name]
    model, x, y = problem()
    for function in (among_many, one_by_one):
        function(model, method, x, y, 2, 10_000)  # compile
    timed = [whole(model, method, x, y, number, 100 + seed) for seed in range(CALIBRATIONS)]
    clock, processor = (sorted(each)[CALIBRATIONS // 2] for each in zip(*timed, strict=True))
    rounds = [
        tuple(function(model, method, x, y, PAIRED, seed) for function in (among_many, one_by_one))
        for seed in range(ROUNDS)
    ]
    many, alone = (sorted(each)[ROUNDS // 2] for each in zip(*rounds, strict=True))
    ratio = sorted(a / b for a, b in rounds)[ROUNDS // 2]
    print(f"{name:34} {number} in {clock:.1f} s, {processor:.1f} s of processor time", flush=True)
    print(f"{'':34} of {PAIRED} one takes {many:.3f} s, by itself {alone:.3f} s, ratio {ratio:.2f}", flush=True)
    return {
        "calibration": {"simulations": number, "clock": clock, "processor": processor, "rounds": CALIBRATIONS},
        "pairs": {"among_many": many, "one_by_one": alone, "ratio": ratio, "simulations": PAIRED, "rounds": ROUNDS},
    }


def network_calibration(name: str, number: int) -> dict[str, Any]:
    """Return the seconds of one calibration of a network, its tracing and compiling included."""
    problem, method = NETWORKS[name]
    model, x, y = problem()
    clock, processor = whole(model, method, x, y, number, 100)
    return {"calibration": {"simulations": number, "clock": clock, "processor": processor, "rounds": 1}}


def rows_left_out(number: int) -> dict[str, Any]:
    """Return the seconds of LOO by refits of NUTS, for each of 353 rows of the diabetes data: medians."""
    rows = bz.datasets.diabetes()
    x, y = ((each - each.mean(0)) / each.std(0) for each in (rows.x[:353], rows.y[:353]))
    model, _, _ = regression(x.shape[1])
    method = bz.NUTS(num_chains=1, num_warmup=300, num_draws=300)

    def all_left_out() -> None:
        assert bool((bz.validation.reloo(model, method, x, y, k_threshold=-1.0).pareto_k == 0).all())

    rounds = [_clock_and_processor(all_left_out) for _ in range(CALIBRATIONS)]
    clock, processor = (sorted(each)[CALIBRATIONS // 2] for each in zip(*rounds, strict=True))
    return {"refits": len(x), "clock": clock, "processor": processor, "rounds": CALIBRATIONS}


def futures_left_out(number: int) -> dict[str, Any]:
    """Return the seconds of processor time of 40 pasts of a series, by one program and by one for each length; empty caches."""
    found: dict[str, Any] = {"pasts": 40, "rounds": 1}
    for method in ("NUTS", "Laplace", "MeanFieldVI"):
        found[method] = {}
        for way in ("padded", "by_length"):
            with tempfile.TemporaryDirectory() as folder:
                run = in_process("benchmarks.futures", method, way, XDG_CACHE_HOME=folder)
            found[method][way] = run["processor"]
    return found


def folds_of_network(number: int) -> dict[str, Any]:
    """Return the seconds of ten folds of a network of 502 parameters by mean-field VI, and of one fit: medians, in turn."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 50), torch.nn.Tanh(), torch.nn.Linear(50, 1))
    model = bz.models.supervised(net, bz.priors.fan_in(1.0), bz.likelihoods.gaussian())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 8, generator=generator)
    y = x[:, :2].sin().sum(1) + 0.3 * torch.randn(300, generator=generator)
    method = bz.MeanFieldVI(num_steps=1000)

    def one() -> object:
        return bz.fit(model, method, x, y, progress=False)

    def ten() -> object:
        return bz.validation.kfold(model, method, x, y, num_folds=10)

    one(), ten()  # compile
    rounds = [[_clock_and_processor(each) for each in (one, ten)] for _ in range(ROUNDS)]
    found = {}
    for place, name in enumerate(("one_fit", "ten_folds")):
        clock, processor = (sorted(each)[ROUNDS // 2] for each in zip(*(pair[place] for pair in rounds), strict=True))
        found[name] = {"clock": clock, "processor": processor}
    return {**found, "ratio": sorted(ten / one for (one, _), (ten, _) in rounds)[ROUNDS // 2], "rounds": ROUNDS}


def _clock_and_processor(call: Callable[[], object]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - processor


def memory(number: int) -> dict[str, Any]:
    """Return the resident memory, in MB, after 20 fits by NUTS and after more."""
    model, x, _ = regression(9)
    generator = torch.Generator().manual_seed(0)
    datasets = ((x, torch.randn(len(x), generator=generator)) for _ in range(number))
    found = {}
    for made, _ in enumerate(bz.fit_many(model, bz.NUTS(num_chains=1, num_warmup=300, num_draws=300), datasets), 1):
        if made in (20, 100, 1000, 10_000) or made == number:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            found[str(made)] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return found


OTHERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "reloo": rows_left_out,
    "folds": folds_of_network,
    "futures": futures_left_out,
    "memory": memory,
    **{name: partial(network_calibration, name) for name in NETWORKS},
}


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    names = sys.argv[2].split(";") if len(sys.argv) > 2 else [*CASES, *OTHERS]
    warnings.simplefilter("ignore")
    record = RESULTS / "many_fits.json"
    table: dict[str, Any] = json.loads(record.read_text())["cases"] if record.exists() else {}
    for name in names:
        table[name] = calibrations(name, number) if name in CASES else OTHERS[name](number)
        print(f"{name:34} {table[name]}", flush=True)
        write("many_fits", {"unit": "seconds; of pairs, of processor time a simulation; memory in MB", "cases": table})


if __name__ == "__main__":
    main()
