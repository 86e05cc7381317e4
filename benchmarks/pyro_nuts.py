"""NUTS on a network small enough for Pyro: effective draws of f(x*) per second, bnnzoo and Pyro in turn, one thread.

Every run is a process of its own. Time is processor time, that of compilers it starts included, from the call that samples to its
return. Pyro's potential is compiled by its own ``jit_compile``. Pyro runs one chain: its chains share nothing, so that
several take as many times as long for as many times the draws. bnnzoo's chains move in one batch.

Run: python -m benchmarks.pyro_nuts [warmup] [draws] [pairs] [chains of bnnzoo]
"""

import json
import sys
import tempfile
from typing import Any

from benchmarks.pairs import in_process, processor_seconds, runs_in_turn, save
from benchmarks.regression import Problem, effective, problem, pyro_model

NUM_ROWS, NUM_INPUTS, HIDDEN = 100, 2, 5


def run_bnnzoo(p: Problem, warmup: int, draws: int, seed: int, chains: int) -> dict[str, float]:
    """Sample with bnnzoo's NUTS."""
    import torch

    import bnnzoo as bz

    torch.set_num_threads(1)
    method = bz.NUTS(num_chains=chains, num_warmup=warmup, num_draws=draws)
    start = processor_seconds()
    posterior = bz.fit(pyro_model(p), method, p.x, p.y, seed=seed, progress=False)
    seconds = processor_seconds() - start
    sites = {name: value.numpy() for name, value in posterior.density.constrain(posterior.draws()).items()}
    return effective(p, sites, seconds, float(posterior.info.sample_stats["n_steps"].double().mean()))


def run_pyro(p: Problem, warmup: int, draws: int, seed: int, _: int) -> dict[str, float]:
    """Sample with Pyro's NUTS."""
    import pyro
    import torch
    from pyro.infer import MCMC, NUTS

    torch.set_num_threads(1)
    pyro.set_rng_seed(seed)
    kernel = NUTS(pyro_model(p), jit_compile=True, ignore_jit_warnings=True)
    sampler = MCMC(kernel, num_samples=draws, warmup_steps=warmup, num_chains=1, disable_progbar=True)
    gradients = _counted(kernel)
    start = processor_seconds()
    sampler.run(torch.from_numpy(p.x), torch.from_numpy(p.y))
    seconds = processor_seconds() - start
    sites = {name: value.numpy() for name, value in sampler.get_samples(group_by_chain=True).items()}
    return effective(p, sites, seconds, gradients() / (warmup + draws))


def _counted(kernel: Any) -> Any:
    """Return what tells how many leaves Pyro's trees had; it keeps no count of its own."""
    count = [0]
    original = kernel._build_basetree

    def counting(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return original(*args, **kwargs)

    kernel._build_basetree = counting
    return lambda: count[0]


def sampled(which: str, cache: str, *sizes: int) -> dict[str, float]:
    """Sample in a process of its own, with inductor's cache in a given folder."""
    return in_process("benchmarks.pyro_nuts", "--run", which, *sizes, TORCHINDUCTOR_CACHE_DIR=cache)


def main(warmup: int = 300, draws: int = 300, pairs: int = 5, chains: int = 1) -> None:
    """Run pairs of samplers in turn and write what they measured."""
    with tempfile.TemporaryDirectory() as cache:
        new = sampled("bnnzoo", cache, warmup, draws, 0, chains)  # fills the cache
        found, runs = runs_in_turn(
            RUNS, lambda which, seed: sampled(which, cache, warmup, draws, seed, chains), "ess_per_second", pairs
        )
    sizes = {"rows": NUM_ROWS, "inputs": NUM_INPUTS, "hidden": HIDDEN}
    facts = {"warmup": warmup, "draws": draws, "chains": chains, **sizes, "runs": runs, "bnnzoo_with_empty_cache": new}
    save(f"pyro_nuts_{chains}", "min-ESS of f(x*) a second", found, "pyro", **facts)


RUNS = {"pyro": run_pyro, "bnnzoo": run_bnnzoo}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        small = problem(NUM_ROWS, NUM_INPUTS, HIDDEN)
        print(json.dumps(RUNS[sys.argv[2]](small, *(int(value) for value in sys.argv[3:]))))
    else:
        main(*(int(value) for value in sys.argv[1:]))
