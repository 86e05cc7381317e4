"""Eight schools and GARCH(1, 1): effective draws per second, bnnzoo and NumPyro in turn, as a user types it.

Run: python -m benchmarks.textbook_models [schools|garch] [warmup] [draws] [pairs]      (needs numpyro)

Two chains, default arguments, no environment variable. Every run is a process of its own that fits twice with different seeds, as
in ``small_models``. Effective draws are the minimum over parameters. NumPyro's GARCH scans over time, as its documentation
does; Pyro's is a loop.
"""

import json
import sys
from typing import Any

import numpy as np

from benchmarks.pairs import as_typed, runs_in_turn, save
from benchmarks.small_models import CHAINS, Array, timed

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12], "f"), np.array([15.0, 10, 16, 11, 9, 11, 10, 18], "f")
"""Effects of coaching in eight schools, and their standard errors (Rubin, 1981)."""

MODELS = ("schools", "garch")
PARAMETERS = {"schools": ("mu", "tau"), "garch": ("mu", "omega", "alpha", "beta")}


def returns(steps: int = 200) -> tuple[Array]:
    """Return a series with the variance omega + alpha (y - mu)^2 + beta variance of the step before."""
    rng = np.random.RandomState(0)
    variance, y = 1.0, np.zeros(steps)
    for t in range(steps):
        y[t] = 0.5 + variance**0.5 * rng.randn()
        variance = 0.3 + 0.3 * (y[t] - 0.5) ** 2 + 0.5 * variance
    return (y.astype("f"),)


def run_bnnzoo(name: str, warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with bnnzoo's NUTS."""
    import pyro
    import pyro.distributions as dist
    import torch

    import bnnzoo as bz

    def schools(y: torch.Tensor, sigma: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = pyro.sample("tau", dist.HalfCauchy(5.0))
        with pyro.plate("schools", len(y)):
            z = pyro.sample("z", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Normal(mu + tau * z, sigma), obs=y)

    def garch(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
        omega = pyro.sample("omega", dist.HalfNormal(5.0))
        alpha = pyro.sample("alpha", dist.Uniform(0.0, 1.0))
        beta = (1 - alpha) * pyro.sample("beta", dist.Uniform(0.0, 1.0))
        variances = [torch.ones_like(mu)]
        for past in y[:-1]:
            variances.append(omega + alpha * (past - mu) ** 2 + beta * variances[-1])
        with pyro.plate("time", len(y)):
            pyro.sample("y", dist.Normal(mu, torch.stack(variances).sqrt()), obs=y)

    model, data = {"schools": (schools, EFFECTS), "garch": (garch, returns())}[name]
    method = bz.NUTS(num_chains=CHAINS, num_warmup=warmup, num_draws=draws)

    def sample(number: int) -> Array:
        posterior = bz.fit(model, method, *data, seed=2 * seed + number)
        values = posterior.density.constrain(posterior.draws())
        return np.stack([values[each].numpy() for each in PARAMETERS[name]], -1)

    return timed(sample)


def run_numpyro(name: str, warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with NumPyro's NUTS, one host device a chain."""
    import numpyro

    numpyro.set_host_device_count(CHAINS)
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist

    def schools(y: Any, sigma: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        with numpyro.plate("schools", len(y)):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu + tau * z, sigma), obs=y)

    def garch(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        omega = numpyro.sample("omega", dist.HalfNormal(5.0))
        alpha = numpyro.sample("alpha", dist.Uniform(0.0, 1.0))
        beta = (1 - alpha) * numpyro.sample("beta", dist.Uniform(0.0, 1.0))

        def step(variance: Any, past: Any) -> tuple[Any, Any]:
            following = omega + alpha * (past - mu) ** 2 + beta * variance
            return following, following

        _, later = jax.lax.scan(step, jnp.ones(()), y[:-1])
        variances = jnp.concatenate([jnp.ones(1), later])
        with numpyro.plate("time", len(y)):
            numpyro.sample("y", dist.Normal(mu, jnp.sqrt(variances)), obs=y)

    model, data = {"schools": (schools, EFFECTS), "garch": (garch, returns())}[name]

    def sample(number: int) -> Array:
        sampler = numpyro.infer.MCMC(
            numpyro.infer.NUTS(model), num_warmup=warmup, num_samples=draws, num_chains=CHAINS, progress_bar=False
        )
        sampler.run(jax.random.PRNGKey(2 * seed + number), *map(jnp.array, data))
        found = sampler.get_samples(group_by_chain=True)
        return np.stack([np.asarray(found[each]) for each in PARAMETERS[name]], -1)

    return timed(sample)


RUNS = {"numpyro": run_numpyro, "bnnzoo": run_bnnzoo}


def main(name: str, warmup: int = 1000, draws: int = 1000, pairs: int = 5) -> None:
    """Run pairs of samplers in turn and write what they measured."""
    found, runs = runs_in_turn(
        RUNS,
        lambda which, seed: as_typed("benchmarks.textbook_models", "--run", which, name, warmup, draws, seed),
        "first_ess_per_second",
        pairs,
    )
    facts = {"warmup": warmup, "draws": draws, "chains": CHAINS, "runs": runs}
    save(f"textbook_{name}_first", "min-ESS a second, compiling included", found, "numpyro", **facts)
    second = {which: [each["second_ess_per_second"] for each in runs[which]] for which in runs}
    save(f"textbook_{name}_second", "min-ESS a second, the second time", second, "numpyro", **facts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(RUNS[sys.argv[2]](sys.argv[3], *map(int, sys.argv[4:]))))
    else:
        for each in sys.argv[1:2] or MODELS:
            main(each, *map(int, sys.argv[2:]))
