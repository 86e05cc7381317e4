"""Exact samplers on a regression network: effective draws of f(x*) per second, bnnzoo and NumPyro in turn, on all cores.

Run: python -m benchmarks.samplers [warmup] [draws] [pairs]      (needs numpyro)

As a user types it: default arguments, no executor, no environment variable. Four chains: NumPyro's in parallel, on as many host
devices; sixteen of bnnzoo's MAMS. Every run is a process of its own, timed from the call that samples to its return, compilation
included.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.pairs import as_typed, runs_in_turn, save
from benchmarks.regression import effective, numpyro_model, problem, pyro_model

CHAINS, MANY_CHAINS = 4, 16


def run_bnnzoo(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with bnnzoo's NUTS."""
    import bnnzoo as bz

    return _fitted(bz.NUTS(num_chains=CHAINS, num_warmup=warmup, num_draws=draws), seed)


def run_mams(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with bnnzoo's MAMS, whose chains adapt together, so that many warm up as fast as few."""
    import bnnzoo as bz

    return _fitted(bz.MAMS(num_chains=MANY_CHAINS, num_warmup=warmup, num_draws=draws), seed)


def _fitted(method: Any, seed: int) -> dict[str, float]:
    import bnnzoo as bz

    p = problem()
    start = time.perf_counter()
    posterior = bz.fit(pyro_model(p), method, p.x, p.y, seed=seed)
    seconds = time.perf_counter() - start
    sites = {name: value.numpy() for name, value in posterior.density.constrain(posterior.draws()).items()}
    stats = posterior.info.sample_stats
    steps = float(stats["n_steps"].double().mean())
    return effective(p, sites, seconds, steps, gradients=posterior.info.num_gradients)


def run_numpyro(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with NumPyro, one host device a chain."""
    import numpyro

    numpyro.set_host_device_count(CHAINS)
    import jax
    import jax.numpy as jnp

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


def main(warmup: int = 200, draws: int = 200, pairs: int = 5) -> None:
    """Run pairs of samplers in turn and write what they measured."""
    found, runs = runs_in_turn(
        RUNS,
        lambda which, seed: as_typed("benchmarks.samplers", "--run", which, warmup, draws, seed),
        "ess_per_second",
        pairs,
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
        runs=runs,
    )


RUNS = {"numpyro": run_numpyro, "bnnzoo": run_bnnzoo, "bnnzoo MAMS": run_mams}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run = RUNS[sys.argv[2]]
        print(json.dumps(run(*(int(value) for value in sys.argv[3:]))))
    else:
        main(*(int(value) for value in sys.argv[1:]))
