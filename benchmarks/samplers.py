"""Exact samplers on a regression network: effective draws of f(x*) per second, bnnzoo and NumPyro in turn, on all cores.

Run: python -m benchmarks.samplers [warmup] [draws] [pairs]      (needs numpyro)

Four chains on two cores: NumPyro's in parallel, bnnzoo's as two batches of two; sixteen of bnnzoo's MAMS in two batches. Every
run is a process of its own, timed from the call that samples to its return, compilation and the start of workers included.
"""

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks.pairs import ONE_THREAD, in_process, runs_in_turn, save
from benchmarks.regression import effective, numpyro_model, problem, pyro_model

CHAINS, MANY_CHAINS, CORES = 4, 16, 2


def run_bnnzoo(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with bnnzoo's NUTS, a batch of chains a core."""
    import bnnzoo as bz

    return _fitted(bz.NUTS(num_chains=CHAINS, num_groups=CORES, num_warmup=warmup, num_draws=draws), seed)


def run_mams(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with bnnzoo's MAMS, a batch of chains a core; they adapt together, so many chains warm up as fast as few."""
    import bnnzoo as bz

    return _fitted(bz.MAMS(num_chains=MANY_CHAINS, num_groups=CORES, num_warmup=warmup, num_draws=draws), seed)


def _fitted(method: Any, seed: int) -> dict[str, float]:
    import bnnzoo as bz

    p = problem()
    with ProcessPoolExecutor(CORES, mp_context=multiprocessing.get_context("spawn")) as executor:
        start = time.perf_counter()
        posterior = bz.fit(pyro_model(p), method, p.x, p.y, seed=seed, executor=executor)
        seconds = time.perf_counter() - start
    sites = {name: value.numpy() for name, value in posterior.density.constrain(posterior.draws()).items()}
    stats = posterior.info.sample_stats
    steps = float(stats["n_steps"].double().mean())
    return effective(p, sites, seconds, steps, gradients=posterior.info.num_gradients)


def run_numpyro(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with NumPyro, one XLA device a chain."""
    import jax
    import jax.numpy as jnp
    import numpyro

    p = problem()
    kernel = numpyro.infer.NUTS(numpyro_model(p))
    sampler = numpyro.infer.MCMC(
        kernel, num_warmup=warmup, num_samples=draws, num_chains=CHAINS, chain_method="parallel", progress_bar=False
    )
    start = time.perf_counter()
    sampler.run(jax.random.PRNGKey(seed), jnp.array(p.x), jnp.array(p.y), extra_fields=("num_steps",))
    sites = {name: np.asarray(value) for name, value in sampler.get_samples(group_by_chain=True).items()}
    seconds = time.perf_counter() - start
    steps = np.asarray(sampler.get_extra_fields()["num_steps"])
    return effective(p, sites, seconds, float(steps.mean()), gradients=float(steps.sum()))


def _in_process(which: str, warmup: int, draws: int, seed: int) -> dict[str, float]:
    flags = f"--xla_force_host_platform_device_count={CHAINS} {ONE_THREAD}"
    return in_process("benchmarks.samplers", "--run", which, warmup, draws, seed, XLA_FLAGS=flags)


def main(warmup: int = 200, draws: int = 200, pairs: int = 5) -> None:
    """Run pairs of samplers in turn and write what they measured."""
    found, runs = runs_in_turn(
        RUNS, lambda which, seed: _in_process(which, warmup, draws, seed), "ess_per_second", pairs
    )
    save(
        "samplers",
        "min-ESS of f(x*) a second",
        found,
        "numpyro",
        warmup=warmup,
        draws=draws,
        chains=CHAINS,
        many_chains=MANY_CHAINS,
        cores=CORES,
        runs=runs,
    )


RUNS = {"numpyro": run_numpyro, "bnnzoo": run_bnnzoo, "bnnzoo MAMS": run_mams}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run = RUNS[sys.argv[2]]
        print(json.dumps(run(*(int(value) for value in sys.argv[3:]))))
    else:
        main(*(int(value) for value in sys.argv[1:]))
