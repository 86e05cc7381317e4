"""On a GPU: a logistic regression with many rows, a network with many chains, and predictions, bnnzoo and NumPyro in turn.

The first call of each, imports left out, and then five calls in turn in one process. bnnzoo fits anew; NumPyro runs the ``MCMC``
object again that it has compiled, with its chains vectorised, since its default runs them one after the other on one device.
Single precision, default settings but for what is named here: 4 chains of 200 + 200 iterations for the regression, where
effective draws count; 64 chains of 30 + 30 with trees of at most 63 steps for the network, where both do the same work.

Run: python -m benchmarks.on_gpu [pairs]      (needs a GPU, numpyro and JAX with CUDA)
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.pairs import in_turn, write
from benchmarks.regression import numpyro_model, problem, pyro_model

ROWS, COLUMNS, CHAINS, ITERATIONS = 100_000, 50, 4, 200
MANY_CHAINS, FEW_ITERATIONS, DEPTH = 64, 30, 6
DRAWS, NEW_ROWS = 320, 100_000


def data() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return inputs ``[N, 50]`` and outcomes of 0 and 1 of a logistic regression."""
    rng = np.random.RandomState(0)
    x = rng.randn(ROWS, COLUMNS).astype("f")
    logits = x @ (0.5 * rng.randn(COLUMNS).astype("f"))
    return x, (rng.rand(ROWS) < 1 / (1 + np.exp(-logits))).astype("f")


def logistic(x: Any, y: Any = None) -> None:
    """Logistic regression as a Pyro model."""
    import pyro
    import pyro.distributions as dist
    import torch

    w = pyro.sample("w", dist.Normal(torch.zeros(COLUMNS), 1.0).to_event(1))
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def logistic_in_numpyro(x: Any, y: Any = None) -> None:
    """Return the same as a NumPyro model."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    w = numpyro.sample("w", dist.Normal(jnp.zeros(COLUMNS), 1.0).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def bnnzoo_fit(model: Any, method: Any, *data: Any) -> Callable[[int], dict[str, float]]:
    """Return a call that fits and counts effective draws of the first parameters and gradients."""
    import bnnzoo as bz

    def call(seed: int) -> dict[str, float]:
        began = time.perf_counter()
        posterior = bz.fit(model, method, *data, device="cuda", progress=False, seed=seed)
        draws = posterior.draws().cpu().numpy()
        return counted(time.perf_counter() - began, draws, posterior.info.sample_stats["n_steps"].cpu().numpy())

    return call


def numpyro_fit(
    model: Any, chains: int, iterations: int, *data: Any, **settings: Any
) -> Callable[[int], dict[str, float]]:
    """Return a call of NumPyro's NUTS, compiled by the first call."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(
        NUTS(model, **settings),
        num_warmup=iterations,
        num_samples=iterations,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    given = [jnp.array(each) for each in data]

    def call(seed: int) -> dict[str, float]:
        began = time.perf_counter()
        sampler.run(jax.random.PRNGKey(seed), *given, extra_fields=("num_steps",))
        sites = {name: np.asarray(value) for name, value in sampler.get_samples(group_by_chain=True).items()}
        draws = np.concatenate([value.reshape(*value.shape[:2], -1) for value in sites.values()], -1)
        steps = np.asarray(sampler.get_extra_fields(group_by_chain=True)["num_steps"])
        return counted(time.perf_counter() - began, draws, steps)

    return call


def counted(seconds: float, draws: NDArray[np.floating], steps: NDArray[np.integer]) -> dict[str, float]:
    """Return seconds, the fewest effective draws of a parameter ``[C, S, P]``, and the steps of a draw."""
    from arviz_stats.base import array_stats  # type: ignore[attr-defined]

    ess = array_stats.ess(draws[..., :COLUMNS].astype("d"), chain_axis=0, draw_axis=1)
    fewest = float(np.min(ess))
    return {
        "seconds": seconds,
        "min_ess": fewest,
        "seconds_per_100_effective": 100 * seconds / fewest,
        "steps_per_draw": float(steps.mean()),
    }


def predictions() -> dict[str, Callable[[int], dict[str, float]]]:
    """Return calls that predict the network's outputs at many rows, from draws such as a sampler leaves."""
    import jax
    import jax.numpy as jnp
    import torch
    from numpyro.infer import Predictive

    import bnnzoo as bz
    from benchmarks.prediction import sites
    from bnnzoo.core.model.density import build_density
    from bnnzoo.core.posterior.posterior import Draws, FitInfo

    p, new = problem(), problem(NEW_ROWS)
    values = sites(p, DRAWS)
    density = build_density(pyro_model(p), torch.from_numpy(p.x), torch.from_numpy(p.y), device="cuda")
    on_gpu = {name: torch.from_numpy(value).cuda() for name, value in values.items()}
    theta = torch.stack([density.unconstrain({n: v[i] for n, v in on_gpu.items()}) for i in range(DRAWS)])
    posterior = Draws(density, FitInfo("mcmc", method="NUTS", sample_stats={"lp": torch.zeros(1, DRAWS)}), theta[None])
    model, draws, x = numpyro_model(p), {n: jnp.array(v) for n, v in values.items()}, jnp.array(new.x)

    def by_bnnzoo(seed: int) -> dict[str, float]:
        began = time.perf_counter()
        bz.predict(posterior, new.x, seed=seed)
        return {"seconds": time.perf_counter() - began}

    def by_numpyro(seed: int) -> dict[str, float]:
        began = time.perf_counter()
        np.asarray(Predictive(model, draws, parallel=False)(jax.random.PRNGKey(seed), x)["obs"])
        return {"seconds": time.perf_counter() - began}

    return {"bnnzoo": by_bnnzoo, "numpyro": by_numpyro}


def cases() -> dict[str, tuple[str, Callable[[], dict[str, Callable[[int], dict[str, float]]]]]]:
    """Return what is measured, and the calls of both libraries."""
    import bnnzoo as bz

    p = problem()
    few = bz.NUTS(num_chains=CHAINS, num_warmup=ITERATIONS, num_draws=ITERATIONS)
    many = bz.NUTS(num_chains=MANY_CHAINS, num_warmup=FEW_ITERATIONS, num_draws=FEW_ITERATIONS, max_tree_depth=DEPTH)
    return {
        "regression, 100,000 rows": (
            "seconds_per_100_effective",
            lambda: {
                "bnnzoo": bnnzoo_fit(logistic, few, *data()),
                "numpyro": numpyro_fit(logistic_in_numpyro, CHAINS, ITERATIONS, *data()),
            },
        ),
        "network, 64 chains": (
            "seconds",
            lambda: {
                "bnnzoo": bnnzoo_fit(pyro_model(p), many, p.x, p.y),
                "numpyro": numpyro_fit(numpyro_model(p), MANY_CHAINS, FEW_ITERATIONS, p.x, p.y, max_tree_depth=DEPTH),
            },
        ),
        "predictions, 320 draws x 100,000 rows": ("seconds", predictions),
    }


def main(pairs: int = 5) -> None:
    """Run every case, first calls and then pairs in turn, and write what was measured."""
    import torch

    found: dict[str, Any] = {}
    for name, (measure, make) in cases().items():
        calls = make()
        runs: dict[str, list[dict[str, float]]] = {who: [call(0)] for who, call in calls.items()}

        def again(who: str, runs: Any = runs, calls: Any = calls, measure: str = measure) -> float:
            runs[who].append(calls[who](len(runs[who])))
            return float(runs[who][-1][measure])

        in_turn({who: lambda who=who, again=again: again(who) for who in calls}, pairs)  # type: ignore[misc]
        medians = {who: float(np.median([run[measure] for run in made[1:]])) for who, made in runs.items()}
        firsts = {who: made[0]["seconds"] for who, made in runs.items()}
        ratio = medians["numpyro"] / medians["bnnzoo"]
        print(f"{name}: {measure} {medians}, first calls {firsts} s; NumPyro's over bnnzoo's {ratio:.2f}", flush=True)
        found[name] = {"measure": measure, "medians": medians, "ratio": ratio, "first": firsts, "runs": runs}
        write("on_gpu", {"found": found, "pairs": pairs, "gpu": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
