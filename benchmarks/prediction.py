"""Predictions of 200 draws at 1,000 rows and of 1,000 at 10,000: bnnzoo, NumPyro and Pyro in turn, and the memory they take.

NumPyro's ``Predictive`` gives draws of y; its ``log_likelihood`` is a second call. bnnzoo's ``predict`` gives draws of y and
the moments of p(y | x, theta), its ``posterior_predictive`` the log likelihood too. Pyro's model cannot be batched as it
stands, so its draws go one by one. Every run is a process of its own.

``--as-typed`` measures wall time and processor time as a user would see them: all cores, default arguments, no environment
variable; the first call, compilation included, and the same call again; with a short fit by NUTS in the same process before the
call, which imports much that prediction needs, and without one. Without an argument, runs are on one thread: processor time, and
the memory that the first call adds to the peak as rows grow.

Run: python -m benchmarks.prediction [--as-typed [rounds]]      (needs numpyro)
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.pairs import ONE_THREAD, as_typed, in_process, in_turn, processor_seconds, save
from benchmarks.regression import Problem, numpyro_model, problem, pyro_model

NUM_DRAWS = 1_000
NUM_ROWS = 10_000
SIZES = ((200, 1_000), (1_000, 10_000))
FITTED_ROWS, FITTED_DRAWS, DEPTH = 100, 5, 4
GROWTH = (1_000, 10_000, 100_000)
SLOW = {"numpyro, parallel"}  # never the better one: measured once a round
TOO_LARGE = {("numpyro, parallel", 100_000)}  # all hidden units of all draws and rows at once: 20 GB


def sites(p: Problem, num_draws: int) -> dict[str, Any]:
    """Return draws of all latent sites, as a sampler might leave them."""
    rng = np.random.RandomState(1)
    values = {
        "w1": rng.randn(num_draws, p.hidden, p.x.shape[1]),
        "b1": rng.randn(num_draws, p.hidden),
        "w2": rng.randn(num_draws, p.hidden) * p.hidden**-0.5,
        "b2": rng.randn(num_draws),
        "sigma": 0.1 + 0.01 * rng.rand(num_draws),
    }
    return {name: value.astype("f") for name, value in values.items()}


def bnnzoo_call(p: Problem, num_draws: int, observed: bool, device: str = "cpu") -> Callable[[], object]:
    """Return a call of ``posterior_predictive``, or of ``predict`` without the observations."""
    import torch

    import bnnzoo as bz
    from bnnzoo.core.model.density import build_density
    from bnnzoo.core.posterior.info import FitInfo
    from bnnzoo.core.posterior.posterior import Draws

    density = build_density(pyro_model(p), torch.from_numpy(p.x), torch.from_numpy(p.y), device=device)
    values = {name: torch.from_numpy(value).to(device) for name, value in sites(p, num_draws).items()}
    theta = torch.stack([density.unconstrain({n: v[i] for n, v in values.items()}) for i in range(num_draws)])
    info = FitInfo(
        "mcmc", method="NUTS", sample_stats={"lp": torch.zeros(1, num_draws)}
    )  # known from the fit, as a sampler's are
    posterior = Draws(density, info, theta[None])
    if observed:
        return lambda: bz.posterior_predictive(posterior, p.x, p.y)
    return lambda: bz.predict(posterior, p.x)


def numpyro_call(p: Problem, num_draws: int, parallel: bool, observed: bool) -> Callable[[], object]:
    """Return a call of NumPyro's ``Predictive``, and of its ``log_likelihood`` if the observations are to be used."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import Predictive, log_likelihood

    model, draws = numpyro_model(p), {name: jnp.array(value) for name, value in sites(p, num_draws).items()}
    x, y = jnp.array(p.x), jnp.array(p.y)

    def call() -> object:
        drawn = Predictive(model, draws, parallel=parallel)(jax.random.PRNGKey(0), x)
        terms = log_likelihood(model, draws, x, y, parallel=parallel) if observed else None
        return jax.block_until_ready((drawn, terms))

    return call


def pyro_call(p: Problem, num_draws: int) -> Callable[[], object]:
    """Return a call of Pyro's ``Predictive``."""
    import torch
    from pyro.infer import Predictive

    draws = {name: torch.from_numpy(value) for name, value in sites(p, num_draws).items()}
    x = torch.from_numpy(p.x)

    def call() -> object:
        with torch.no_grad():
            return Predictive(pyro_model(p), draws, return_sites=("obs",))(x)

    return call


CALLS: dict[str, Callable[[Problem, int], Callable[[], object]]] = {
    "numpyro": lambda p, draws: numpyro_call(p, draws, parallel=False, observed=False),
    "numpyro, parallel": lambda p, draws: numpyro_call(p, draws, parallel=True, observed=False),
    "bnnzoo": lambda p, draws: bnnzoo_call(p, draws, observed=False),
    "pyro": pyro_call,
    "numpyro, with log likelihood": lambda p, draws: numpyro_call(p, draws, parallel=False, observed=True),
    "bnnzoo, with log likelihood": lambda p, draws: bnnzoo_call(p, draws, observed=True),
}
AS_TYPED = [which for which in CALLS if which not in SLOW and which != "pyro"]


def fit_before(which: str) -> None:
    """Fit the model to a few rows, as most scripts do before they predict."""
    p = problem(FITTED_ROWS)
    if which.startswith("numpyro"):
        import jax
        from numpyro.infer import MCMC, NUTS

        chain = MCMC(
            NUTS(numpyro_model(p), max_tree_depth=DEPTH),
            num_warmup=FITTED_DRAWS,
            num_samples=FITTED_DRAWS,
            progress_bar=False,
        )
        chain.run(jax.random.PRNGKey(0), p.x, p.y)
    else:
        import bnnzoo as bz

        method = bz.NUTS(num_chains=1, num_warmup=FITTED_DRAWS, num_draws=FITTED_DRAWS, max_tree_depth=DEPTH)
        bz.fit(pyro_model(p), method, p.x, p.y, progress=False)


def measure(which: str, num_rows: int, times: int, num_draws: int = NUM_DRAWS, fits: bool = False) -> dict[str, float]:
    """Return seconds of the first call and of the last of several, and the memory in GiB that the first one adds."""
    if fits:
        fit_before(which)
    call = CALLS[which](problem(num_rows), num_draws)
    before, seconds, walls = _peak(), [], []
    for _ in range(times):
        start, wall = processor_seconds(), time.perf_counter()
        result = call()
        seconds.append(processor_seconds() - start)
        walls.append(time.perf_counter() - wall)
        del result
        if len(seconds) == 1:
            added = _peak() - before
    memory = {"added_gib": added, "before_gib": before}
    return {"first": seconds[0], "again": seconds[-1], "first_wall": walls[0], "again_wall": walls[-1], **memory}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measured(which: str, num_rows: int, times: int) -> dict[str, float]:
    """Measure in a process of its own, whose peak memory is then that of this call alone."""
    return in_process("benchmarks.prediction", "--run", which, num_rows, times, XLA_FLAGS=ONE_THREAD)


def as_users_do(rounds: int) -> None:
    """Measure seconds as typed, with and without a fit before, and write the results."""
    for fits in (1, 0):
        for num_draws, num_rows in SIZES:
            runs: dict[str, list[dict[str, float]]] = {which: [] for which in AS_TYPED}
            for _ in range(rounds):
                for which in AS_TYPED:
                    arguments = ("--run", which, num_rows, 3, num_draws, fits)
                    runs[which].append(as_typed("benchmarks.prediction", *arguments))
            name = f"prediction_as_typed_{num_draws}x{num_rows}_{'after_fit' if fits else 'alone'}"
            rates = {w: [num_draws * num_rows / run["first_wall"] for run in runs[w]] for w in AS_TYPED}
            again = {w: [num_draws * num_rows / run["again_wall"] for run in runs[w]] for w in AS_TYPED}
            facts: dict[str, Any] = {"draws": num_draws, "rows": num_rows, "fit_before": bool(fits), "runs": runs}
            save(name, "draws x rows a second, first call", rates, "numpyro", **facts)
            save(f"{name}_again", "draws x rows a second, same call again", again, "numpyro", **facts)


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
        if "OMP_NUM_THREADS" in os.environ:  # not as typed: on one core, or bnnzoo would spread blocks over all of them
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(json.dumps(measure(sys.argv[2], *map(int, sys.argv[3:]))))
    elif sys.argv[1:2] == ["--as-typed"]:
        as_users_do(int(sys.argv[2]) if sys.argv[2:] else 5)
    else:
        main()
