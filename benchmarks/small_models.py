"""Small linear regressions: effective draws of the coefficients per second, bnnzoo and NumPyro in turn, as a user types it.

Run: python -m benchmarks.small_models [rows] [inputs] [warmup] [draws] [pairs]      (needs numpyro)

Two chains, default arguments, no environment variable. Every run is a process of its own that fits twice with different seeds:
the first fit includes compilation, the second does not for bnnzoo. NumPyro compiles both times. For nutpie see
``benchmarks.nutpie``.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.pairs import as_typed, runs_in_turn, save

CHAINS = 2

type Array = NDArray[np.floating]


def data(rows: int, inputs: int) -> tuple[Array, Array]:
    """Return correlated inputs and a linear response with noise of standard deviation 1, in single precision."""
    rng = np.random.RandomState(0)
    x = rng.randn(rows, inputs) @ (np.eye(inputs) + 0.5 * rng.randn(inputs, inputs) / inputs**0.5)
    return x.astype("f"), (x @ rng.randn(inputs) + rng.randn(rows)).astype("f")


def run_bnnzoo(rows: int, inputs: int, warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with bnnzoo's NUTS."""
    import pyro
    import pyro.distributions as dist
    import torch

    import bnnzoo as bz

    def model(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
        s = pyro.sample("s", dist.HalfNormal(10.0))
        with pyro.plate("n", len(x)):
            pyro.sample("y", dist.Normal(x @ b, s), obs=y)

    x, y = data(rows, inputs)
    method = bz.NUTS(num_chains=CHAINS, num_warmup=warmup, num_draws=draws)

    def sample(number: int) -> Array:
        posterior = bz.fit(model, method, x, y, seed=2 * seed + number)
        found: Array = posterior.density.constrain(posterior.draws())["b"].numpy()
        return found

    return timed(sample)


def run_numpyro(rows: int, inputs: int, warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with NumPyro's NUTS, one host device a chain."""
    import numpyro

    numpyro.set_host_device_count(CHAINS)
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist

    def model(x: Any, y: Any = None) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(10.0))
        numpyro.sample("y", dist.Normal(x @ b, s), obs=y)

    x, y = data(rows, inputs)

    def sample(number: int) -> Array:
        kernel = numpyro.infer.NUTS(model)
        sampler = numpyro.infer.MCMC(
            kernel, num_warmup=warmup, num_samples=draws, num_chains=CHAINS, progress_bar=False
        )
        sampler.run(jax.random.PRNGKey(2 * seed + number), jnp.array(x), jnp.array(y))
        return np.asarray(sampler.get_samples(group_by_chain=True)["b"])

    return timed(sample)


def timed(sample: Callable[[int], Array]) -> dict[str, float]:
    """Sample twice, and return seconds and the smallest effective sample size a second of each time."""
    import arviz as az

    found: dict[str, float] = {}
    for number, name in enumerate(("first", "second")):
        start = time.perf_counter()
        draws = sample(number)
        seconds = time.perf_counter() - start
        ess = min(float(az.ess(draws[:, :, i])) for i in range(draws.shape[2]))
        found |= {f"{name}_seconds": seconds, f"{name}_ess": ess, f"{name}_ess_per_second": ess / seconds}
    return found


def main(rows: int = 100, inputs: int = 5, warmup: int = 1000, draws: int = 1000, pairs: int = 5) -> None:
    """Run pairs of samplers in turn and write what they measured."""
    sizes = rows, inputs, warmup, draws
    found, runs = runs_in_turn(
        list(RUNS),
        lambda which, seed: as_typed("benchmarks.small_models", "--run", which, *sizes, seed),
        "first_ess_per_second",
        pairs,
    )
    facts = {"rows": rows, "inputs": inputs, "warmup": warmup, "draws": draws, "chains": CHAINS, "runs": runs}
    save(f"small_models_{rows}x{inputs}_first", "min-ESS a second, compiling included", found, "numpyro", **facts)
    second = {name: [each["second_ess_per_second"] for each in runs[name]] for name in runs}
    save(f"small_models_{rows}x{inputs}_second", "min-ESS a second, the second time", second, "numpyro", **facts)


RUNS = {"numpyro": run_numpyro, "bnnzoo": run_bnnzoo}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run = RUNS[sys.argv[2]]
        print(json.dumps(run(*(int(value) for value in sys.argv[3:]))))
    else:
        main(*(int(value) for value in sys.argv[1:]))
