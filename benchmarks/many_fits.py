"""Time of one fit among many: simulation-based calibration as typed, and beside a loop of fits that know of no other.

python -m benchmarks.many_fits [simulations of a calibration]
"""

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import bnnzoo as bz
from benchmarks.pairs import write
from bnnzoo.core.density import build_density
from bnnzoo.validation.simulations import Simulation, places_of_outcomes, ranks_of

ROUNDS, PAIRED = 5, 10
"""Rounds, and simulations in each, of the comparison with fits one by one."""

CALIBRATIONS = 3
"""How often a whole calibration is timed."""


def regression(num_inputs: int) -> tuple[Callable[..., None], Tensor, Tensor]:
    """Return a linear model with one noise scale, and 50 rows of data."""

    def model(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(num_inputs), 1.0).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ b, sigma), obs=y)

    generator = torch.Generator().manual_seed(0)
    return model, torch.randn(50, num_inputs, generator=generator), torch.randn(50, generator=generator)


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


CASES = {
    "NUTS, 3 parameters, 300 + 300": (2, bz.NUTS(num_chains=1, num_warmup=300, num_draws=300)),
    "NUTS, 10 parameters, 500 + 500": (9, bz.NUTS(num_chains=1, num_warmup=500, num_draws=500)),
    "HMC, 3 parameters, 300 + 300": (2, bz.HMC(num_chains=1, num_warmup=300, num_draws=300)),
    "MeanFieldVI, 3 parameters": (2, bz.MeanFieldVI()),
    "FullRankVI, 3 parameters": (2, bz.FullRankVI()),
    "Laplace, 3 parameters": (2, bz.Laplace()),
}


def whole(model: Any, method: Any, x: Tensor, y: Tensor, number: int, seed: int) -> tuple[float, float]:
    """Return seconds on the clock and of processor time of a calibration, its tracing included."""
    clock, processor = time.perf_counter(), time.process_time()
    bz.validation.sbc(model, method, x, y, num_simulations=number, seed=seed, progress=False)
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    warnings.simplefilter("ignore")
    table = {}
    for name, (num_inputs, method) in CASES.items():
        model, x, y = regression(num_inputs)
        for function in (among_many, one_by_one):
            function(model, method, x, y, 2, 10_000)  # compile
        calibrations = [whole(model, method, x, y, number, 100 + seed) for seed in range(CALIBRATIONS)]
        clock, processor = (sorted(each)[CALIBRATIONS // 2] for each in zip(*calibrations, strict=True))
        rounds = [
            tuple(function(model, method, x, y, PAIRED, seed) for function in (among_many, one_by_one))
            for seed in range(ROUNDS)
        ]
        many, alone = (sorted(each)[ROUNDS // 2] for each in zip(*rounds, strict=True))
        ratio = sorted(a / b for a, b in rounds)[ROUNDS // 2]
        table[name] = {
            "calibration": {"simulations": number, "clock": clock, "processor": processor, "rounds": CALIBRATIONS},
            "pairs": {"among_many": many, "one_by_one": alone, "ratio": ratio, "simulations": PAIRED, "rounds": ROUNDS},
        }
        print(f"{name:34} {number} in {clock:.1f} s, {processor:.1f} s of processor time", flush=True)
        print(f"{'':34} of {PAIRED} one takes {many:.3f} s, by itself {alone:.3f} s, ratio {ratio:.2f}", flush=True)
    write("many_fits", {"unit": "seconds; of pairs, of processor time a simulation", "cases": table})


if __name__ == "__main__":
    main()
