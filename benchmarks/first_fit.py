"""First fits of models that are not regressions: processor seconds of bnnzoo and NumPyro in turn, compiling included.

Run: python -m benchmarks.first_fit [rounds] [model ...]      (needs numpyro)

Two chains of 500 + 500 iterations of NUTS, default arguments. Each run is a process of its own with empty caches; libraries are
imported before the clock starts, and what a compiler takes counts. The models are texts of benchmarks.strangers and of
benchmarks.deciding_models.
"""

import functools
import json
import os
import sys
import tempfile
import warnings
from typing import Any

import numpy as np

from benchmarks.deciding_models import DECIDING
from benchmarks.pairs import as_typed, processor_seconds, runs_in_turn, save
from benchmarks.strangers import counts, course, dynamics, hierarchies  # noqa: F401
from benchmarks.strangers.catalogue import STRANGERS
from benchmarks.strangers.namespaces import numpyro_names, pyro_names

MODELS = {
    "LKJ, varying slopes": "cafes, LKJ, non-centred",
    "Gaussian process": "Gaussian process, marginal",
    "beta-binomial": "beta-binomial",
    "ordered logistic": "ordinal",
    "categorical": "softmax",
    "factor": "censored Weibull, factor",
    **{name: name for name in DECIDING},
}
CHAINS, WARMUP, DRAWS = 2, 500, 500


def run_bnnzoo(name: str, seed: int) -> float:
    """Return the processor seconds of a fit."""
    import torch

    import bnnzoo as bz

    stranger, namespaces = _text_of(name, pyro_names(), torch.linalg)
    model = functools.wraps(stranger.text)(functools.partial(stranger.text, *namespaces))
    del model.__wrapped__
    data = [torch.as_tensor(each) for each in stranger.data]
    before = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bz.fit(model, bz.NUTS(num_chains=CHAINS, num_warmup=WARMUP, num_draws=DRAWS), *data, seed=seed, progress=False)
    return processor_seconds() - before


def run_numpyro(name: str, seed: int) -> float:
    """Return the processor seconds of a fit, one host device a chain."""
    import numpyro

    numpyro.set_host_device_count(CHAINS)
    import jax
    import jax.numpy as jnp

    stranger, namespaces = _text_of(name, numpyro_names(), jnp.linalg)
    model = functools.partial(stranger.text, *namespaces)
    # an array of JAX cannot decide: its users leave such data to numpy
    data = [np.asarray(each) if name in DECIDING else jnp.asarray(np.asarray(each)) for each in stranger.data]
    kernel = numpyro.infer.NUTS(model)
    sampler = numpyro.infer.MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, progress_bar=False)
    before = processor_seconds()
    sampler.run(jax.random.PRNGKey(seed), *data)
    jax.block_until_ready(sampler.get_samples())
    return processor_seconds() - before


def _text_of(name: str, names: Any, linear_algebra: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a text and the namespaces that it takes."""
    return (DECIDING[name], (names, linear_algebra)) if name in DECIDING else (STRANGERS[name], (names,))


RUNS = {"numpyro": run_numpyro, "bnnzoo": run_bnnzoo}


def run_once(which: str, name: str, seed: int) -> dict[str, float]:
    """Return what a process of its own with empty caches measures."""
    kept = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            return as_typed("benchmarks.first_fit", "--run", which, name, seed)
        finally:
            os.environ.pop("XDG_CACHE_HOME")
            if kept is not None:
                os.environ["XDG_CACHE_HOME"] = kept


def main(rounds: int = 5, *names: str) -> None:
    """Run pairs in turn, and write what they measured, a file for each model."""
    for name in names or MODELS:
        found, _ = runs_in_turn(
            RUNS, lambda which, seed, text=MODELS[name]: run_once(which, text, seed), "seconds", rounds
        )  # type: ignore[misc]
        facts: dict[str, Any] = {"model": MODELS[name], "chains": CHAINS, "warmup": WARMUP, "draws": DRAWS}
        save(f"first_fit_{name.replace(',', '').replace(' ', '_')}", "processor seconds", found, "numpyro", **facts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps({"seconds": RUNS[sys.argv[2]](sys.argv[3], int(sys.argv[4]))}))
    else:
        main(*map(int, sys.argv[1:2]), *sys.argv[2:])
