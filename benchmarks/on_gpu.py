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

from benchmarks.pairs import runs_in_turn, write
from benchmarks.prediction import bnnzoo_call, numpyro_call
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
    p = problem(NEW_ROWS)
    ours = bnnzoo_call(p, DRAWS, observed=False, device="cuda")
    theirs: Any = numpyro_call(p, DRAWS, parallel=False, observed=False)
    return {"bnnzoo": timed(ours), "numpyro": timed(lambda: np.asarray(theirs()[0]["obs"]))}  # both in main memory


def timed(call: Callable[[], object]) -> Callable[[int], dict[str, float]]:
    """Return a call that is timed, and leaves its seed unused."""

    def measured(seed: int) -> dict[str, float]:
        began = time.perf_counter()
        call()
        return {"seconds": time.perf_counter() - began}

    return measured


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
        firsts = {who: call(pairs)["seconds"] for who, call in calls.items()}
        values, runs = runs_in_turn(calls, lambda who, seed, calls=calls: calls[who](seed), measure, pairs)  # type: ignore[misc]
        medians = {who: float(np.median(each)) for who, each in values.items()}
        ratio = medians["numpyro"] / medians["bnnzoo"]
        print(f"{name}: {measure} {medians}, first calls {firsts} s; NumPyro's over bnnzoo's {ratio:.2f}", flush=True)
        found[name] = {"measure": measure, "medians": medians, "ratio": ratio, "first": firsts, "runs": runs}
        write("on_gpu", {"found": found, "pairs": pairs, "gpu": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
