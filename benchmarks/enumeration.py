"""Discrete latent variables summed out: a long hidden Markov chain against NumPyro's scan, a mixture against one summed by hand.

Run: python -m benchmarks.enumeration [chain | mixture] [rounds]      (needs numpyro and funsor)

The chain has 500 steps and 5 states, in single precision, written as users write it: a loop by pyro.markov, and scan with sites
that are enumerated. One gradient is one of many in a row within native code, on one thread; the seconds up to the first gradient
are those of a process of its own with an empty cache, from the model to the compiled gradient. The mixture is fitted by NUTS with
four chains as typed, once with its classes as sites, and once as a MixtureSameFamily; compiling is included.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.pairs import ONE_THREAD, in_process, microseconds, processor_seconds, runs_in_turn, save

STEPS, STATES, ROWS = 500, 5, 500
GRADIENTS = 200


def chain(y: Any) -> None:
    """Sample a chain of states and observe what each emits."""
    import pyro
    import pyro.distributions as dist
    import torch

    p = pyro.sample("p", dist.Dirichlet(torch.ones(STATES, STATES)).to_event(1))
    mu = pyro.sample("mu", dist.Normal(torch.linspace(-2.0, 2.0, STATES), 1.0).to_event(1))
    x = 0
    for t in pyro.markov(range(len(y))):
        x = pyro.sample(f"x{t}", dist.Categorical(p[x]))
        pyro.sample(f"y{t}", dist.Normal(mu[x], 0.5), obs=y[t])


def series() -> Any:
    """Return the observations of the chain."""
    import numpy as np

    rng = np.random.RandomState(0)
    states = np.cumsum(rng.rand(STEPS) < 0.1) % STATES
    return (np.linspace(-2.0, 2.0, STATES)[states] + 0.5 * rng.randn(STEPS)).astype("f")


def chain_here() -> dict[str, float]:
    """Return the seconds up to the first gradient, and the microseconds of one."""
    import torch

    from bnnzoo.core.density import build_density
    from bnnzoo.engine.cpp.translate import for_native
    from bnnzoo.engine.graphs import trace
    from bnnzoo.engine.runs import NativeRuns

    torch.set_num_threads(1)
    one = torch.ones(1, 1)
    NativeRuns(trace(lambda x: (x + x,), [one[0]], for_native())[0], [one[0]], moving={0})  # loads libraries
    y = torch.as_tensor(series())
    before = processor_seconds()
    density = build_density(chain, y)
    theta = 0.1 * torch.randn(GRADIENTS, density.num_params)

    def gradient(theta: Any, y: Any) -> Any:
        value, slope = density.batched_value_and_grad(theta[None], y)
        return value[0], slope[0]

    graph = trace(gradient, [theta[0], y], for_native())[0]
    runs = NativeRuns(graph, [theta[0], y], moving={0})
    runs(theta[:1], y)
    seconds = processor_seconds() - before
    return {"seconds": seconds, "gradient": microseconds(lambda: runs(theta, y), 10) / GRADIENTS}


def chain_numpyro() -> dict[str, float]:
    """Return the same of NumPyro's potential, whose gradients are steps of one compiled loop."""
    os.environ["XLA_FLAGS"] = ONE_THREAD
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.contrib.funsor
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y: Any) -> None:
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones((STATES, STATES))).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(jnp.linspace(-2.0, 2.0, STATES), 1.0).to_event(1))

        def step(x: Any, y: Any) -> Any:
            x = numpyro.sample("x", dist.Categorical(p[x]), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Normal(mu[x], 0.5), obs=y)
            return x, None

        scan(step, 0, y)

    y = jnp.asarray(series())
    before = processor_seconds()
    info = numpyro.infer.util.initialize_model(jax.random.PRNGKey(0), model, model_args=(y,))
    gradient = jax.grad(info.potential_fn)

    @jax.jit
    def loop(z: Any) -> Any:
        def body(z: Any, _: None) -> Any:
            return jax.tree.map(lambda a, g: a - 1e-9 * g, z, gradient(z)), None

        return jax.lax.scan(body, z, None, length=GRADIENTS)[0]

    z = info.param_info.z
    jax.block_until_ready(loop(z))
    seconds = processor_seconds() - before
    return {"seconds": seconds, "gradient": microseconds(lambda: jax.block_until_ready(loop(z)), 3) / GRADIENTS}


def mixture(summed_by: str) -> Callable[[Any], None]:
    """Return a mixture of three normal distributions, whose classes are sites or summed by torch."""
    import pyro
    import pyro.distributions as dist
    import torch

    def model(y: Any) -> None:
        w = pyro.sample("w", dist.Dirichlet(torch.ones(3)))
        mu = pyro.sample("mu", dist.Normal(torch.tensor([-3.0, 0.0, 3.0]), 1.0).to_event(1))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            if summed_by == "sites":
                z = pyro.sample("z", dist.Categorical(w))
                pyro.sample("y", dist.Normal(mu[z], scale), obs=y)
            else:
                pyro.sample("y", dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, scale)), obs=y)

    return model


def mixture_fit(summed_by: str, seed: int) -> dict[str, float]:
    """Return the processor seconds of a fit."""
    import warnings

    import torch

    import bnnzoo as bz

    generator = torch.Generator().manual_seed(0)
    y = torch.randn(ROWS, generator=generator) + torch.tensor([-3.0, 0.0, 3.0])[torch.arange(ROWS) % 3]
    before = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bz.fit(mixture(summed_by), bz.NUTS(), y, seed=seed, progress=False)
    return {"seconds": processor_seconds() - before}


def run_once(part: str, which: str, seed: int) -> dict[str, float]:
    """Return what a process of its own with an empty cache measures."""
    with tempfile.TemporaryDirectory() as folder:
        return in_process("benchmarks.enumeration", "--run", part, which, seed, XDG_CACHE_HOME=folder)


def main(part: str = "chain", rounds: int = 5) -> None:
    """Run pairs in turn, and write what they measured."""
    if part == "mixture":
        found, _ = runs_in_turn(("MixtureSameFamily", "sites"), lambda w, s: run_once(part, w, s), "seconds", rounds)
        save("enumeration_mixture", "processor seconds", found, "MixtureSameFamily", rows=ROWS, classes=3, chains=4)
        return
    _, runs = runs_in_turn(("numpyro", "bnnzoo"), lambda w, s: run_once(part, w, s), "gradient", rounds)
    for measure, unit in (("gradient", "us a gradient"), ("seconds", "processor seconds up to the first gradient")):
        found = {which: [each[measure] for each in values] for which, values in runs.items()}
        save(f"enumeration_chain_{measure}", unit, found, "numpyro", steps=STEPS, states=STATES)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        _, _, own_part, own, own_seed = sys.argv
        if own_part == "mixture":
            print(json.dumps(mixture_fit(own, int(own_seed))))
        else:
            print(json.dumps(chain_here() if own == "bnnzoo" else chain_numpyro()))
    else:
        main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
