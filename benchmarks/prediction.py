"""Predictions of 1,000 draws at 10,000 rows: bnnzoo, NumPyro and Pyro in turn, and the memory they take as rows grow.

NumPyro's ``Predictive`` gives draws of y; its ``log_likelihood`` is a second call. bnnzoo's ``predict`` gives draws of y and
the moments of p(y | x, theta), its ``posterior_predictive`` the log likelihood too. Pyro's model cannot be batched as it
stands, so its draws go one by one. Every run is a process of its own on one thread; time is processor time of the first call,
compilation included, and of the same call again; memory is what the first call adds to the peak.

Run: python -m benchmarks.prediction      (needs numpyro)
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.pairs import ONE_THREAD, in_process, in_turn, save
from benchmarks.regression import Problem, numpyro_model, problem, pyro_model

NUM_DRAWS = 1_000
NUM_ROWS = 10_000
GROWTH = (1_000, 10_000, 100_000)
SLOW = {"numpyro, parallel"}  # never the better one: measured once a round
TOO_LARGE = {("numpyro, parallel", 100_000)}  # all hidden units of all draws and rows at once: 20 GB


def sites(p: Problem) -> dict[str, Any]:
    """Return draws of all latent sites, as a sampler might leave them."""
    rng = np.random.RandomState(1)
    values = {
        "w1": rng.randn(NUM_DRAWS, p.hidden, p.x.shape[1]),
        "b1": rng.randn(NUM_DRAWS, p.hidden),
        "w2": rng.randn(NUM_DRAWS, p.hidden) * p.hidden**-0.5,
        "b2": rng.randn(NUM_DRAWS),
        "sigma": 0.1 + 0.01 * rng.rand(NUM_DRAWS),
    }
    return {name: value.astype("f") for name, value in values.items()}


def bnnzoo_call(p: Problem, observed: bool) -> Callable[[], object]:
    """Return a call of ``posterior_predictive``, or of ``predict`` without the observations."""
    import torch

    import bnnzoo as bz
    from bnnzoo.core.density import build_density
    from bnnzoo.core.posterior import Draws, FitInfo

    torch.set_num_threads(1)
    density = build_density(pyro_model(p), torch.from_numpy(p.x), torch.from_numpy(p.y))
    values = {name: torch.from_numpy(value) for name, value in sites(p).items()}
    theta = torch.stack([density.unconstrain({n: v[i] for n, v in values.items()}) for i in range(NUM_DRAWS)])
    info = FitInfo(
        "mcmc", method="NUTS", sample_stats={"lp": torch.zeros(1, NUM_DRAWS)}
    )  # known from the fit, as a sampler's are
    posterior = Draws(density, info, theta[None])
    if observed:
        return lambda: bz.posterior_predictive(posterior, p.x, p.y)
    return lambda: bz.predict(posterior, p.x)


def numpyro_call(p: Problem, parallel: bool, observed: bool) -> Callable[[], object]:
    """Return a call of NumPyro's ``Predictive``, and of its ``log_likelihood`` if the observations are to be used."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import Predictive, log_likelihood

    model, draws = numpyro_model(p), {name: jnp.array(value) for name, value in sites(p).items()}
    x, y = jnp.array(p.x), jnp.array(p.y)

    def call() -> object:
        drawn = Predictive(model, draws, parallel=parallel)(jax.random.PRNGKey(0), x)
        terms = log_likelihood(model, draws, x, y, parallel=parallel) if observed else None
        return jax.block_until_ready((drawn, terms))

    return call


def pyro_call(p: Problem) -> Callable[[], object]:
    """Return a call of Pyro's ``Predictive``."""
    import torch
    from pyro.infer import Predictive

    torch.set_num_threads(1)
    draws = {name: torch.from_numpy(value) for name, value in sites(p).items()}
    x = torch.from_numpy(p.x)

    def call() -> object:
        with torch.no_grad():
            return Predictive(pyro_model(p), draws, return_sites=("obs",))(x)

    return call


CALLS: dict[str, Callable[[Problem], Callable[[], object]]] = {
    "numpyro": lambda p: numpyro_call(p, parallel=False, observed=False),
    "numpyro, parallel": lambda p: numpyro_call(p, parallel=True, observed=False),
    "bnnzoo": lambda p: bnnzoo_call(p, observed=False),
    "pyro": pyro_call,
    "numpyro, with log likelihood": lambda p: numpyro_call(p, parallel=False, observed=True),
    "bnnzoo, with log likelihood": lambda p: bnnzoo_call(p, observed=True),
}


def measure(which: str, num_rows: int, times: int) -> dict[str, float]:
    """Return seconds of the first call and of the last of several, and the memory in GiB that the first one adds."""
    call = CALLS[which](problem(num_rows))
    before, seconds = _peak(), []
    for _ in range(times):
        start = time.process_time()
        result = call()
        seconds.append(time.process_time() - start)
        del result
        if len(seconds) == 1:
            added = _peak() - before
    return {"first": seconds[0], "again": seconds[-1], "added_gib": added, "before_gib": before}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measured(which: str, num_rows: int, times: int) -> dict[str, float]:
    """Measure in a process of its own, whose peak memory is then that of this call alone."""
    return in_process("benchmarks.prediction", "--run", which, num_rows, times, XLA_FLAGS=ONE_THREAD)


def main() -> None:
    """Measure rates in turn, then memory, and write the results."""
    runs: dict[str, list[dict[str, float]]] = {which: [] for which in CALLS}

    def rate(which: str) -> float:
        runs[which].append(measured(which, NUM_ROWS, times=1 if which in SLOW else 2))
        return NUM_DRAWS * NUM_ROWS / runs[which][-1]["first"]

    found = in_turn({which: lambda which=which: rate(which) for which in CALLS})
    save("prediction", "draws x rows a second, first call", found, "numpyro", draws=NUM_DRAWS, rows=NUM_ROWS, runs=runs)
    again = {which: [NUM_DRAWS * NUM_ROWS / run["again"] for run in runs[which]] for which in runs if which not in SLOW}
    save("prediction_again", "draws x rows a second, same call again", again, "numpyro", draws=NUM_DRAWS, rows=NUM_ROWS)
    for num_rows in GROWTH:
        able = [which for which in CALLS if (which, num_rows) not in TOO_LARGE and which != "pyro"]
        added = {which: [measured(which, num_rows, times=1)["added_gib"]] for which in able}
        of_results = {"one array of draws x rows": NUM_DRAWS * num_rows * 4 / 2**30}
        save(f"prediction_memory_{num_rows}", "GiB added to the peak", added, "numpyro", gib=of_results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main()
