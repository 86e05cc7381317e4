"""A deep ensemble of ten networks: against one network, whole fits with the same steps, and against NumPyro's, a step of Adam.

Against one network two ways: ``MAP`` as it stands (Adam, then L-BFGS until every member has converged), and five thousand steps
of Adam alone. Processor time, compilation included where a fit compiles; the caches of compilers are warm.

``DeepEnsemble`` as it is typed: all cores, default arguments, wall time of the first and of the second fit of a process.

A step of all ten members, in processor time: of bnnzoo within a fit, with all that it does at every step; of NumPyro
``SVI.update`` with ``AutoDelta`` and ``Adam``, vectorised over members, in one compiled loop.

Run: python -m benchmarks.ensemble [steps | typed]      (only those; steps need numpyro)
"""

import json
import os
import sys
import time
from collections.abc import Callable

import torch

import bnnzoo as bz
from benchmarks.pairs import ONE_THREAD, StepClock, as_typed, in_turn, microseconds, runs_in_turn, save
from benchmarks.regression import Problem, numpyro_model, problem, pyro_model
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import build_density
from bnnzoo.engine.cores import one_core

MEMBERS = 10
LEARNING_RATE = 0.03
SIZES = {"small": (100, 10), "middling": (600, 50)}
WAYS = {"default": {}, "adam": {"num_steps": 5_000, "polish_steps": 0}}


def seconds(p: Problem, members: int, way: str) -> float:
    """Return the processor time of a fit."""
    method = bz.MAP(num_members=members, **WAYS[way])
    return microseconds(lambda: bz.fit(pyro_model(p), method, p.x, p.y, progress=False), 1) / 1e6


def bnnzoo_step(p: Problem, num_steps: int = 5_000) -> float:
    """Return the processor time of a step of all members in microseconds, one member after the other."""
    method = bz.MAP(num_members=MEMBERS, num_steps=num_steps, polish_steps=0, learning_rate=LEARNING_RATE)
    clock = StepClock()
    density = build_density(pyro_model(p), torch.from_numpy(p.x), torch.from_numpy(p.y))
    with one_core():
        method.run(density, FitContext(progress=clock))
    return clock.microseconds


def numpyro_step(p: Problem, num_steps: int = 500) -> Callable[[], float]:
    """Return what measures a step of all members inside one compiled loop."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    model, data = numpyro_model(p), (jnp.array(p.x), jnp.array(p.y))
    svi = SVI(model, autoguide.AutoDelta(model), numpyro.optim.Adam(LEARNING_RATE), Trace_ELBO())
    start = jax.vmap(lambda key: svi.init(key, *data))(jax.random.split(jax.random.PRNGKey(0), MEMBERS))
    update = jax.vmap(lambda state: svi.update(state, *data))
    loop = jax.jit(lambda states: jax.lax.scan(lambda now, _: update(now), states, None, length=num_steps))
    jax.block_until_ready(loop(start))
    return lambda: microseconds(lambda: jax.block_until_ready(loop(start)), 1) / num_steps


def compare_steps() -> None:
    """Measure a step of ten members with both libraries and write the results."""
    p = problem()
    candidates = {"numpyro": numpyro_step(p), "bnnzoo": lambda: bnnzoo_step(p)}
    save("ensemble_step", "us a step of ten members", in_turn(candidates), "numpyro", rows=600, params=p.num_params)


def compare_with_one() -> None:
    """Measure one member and ten of them in turn, and write the results."""
    for size, (rows, hidden) in SIZES.items():
        p = problem(rows, hidden=hidden)
        for way in WAYS:
            candidates = {f"{n} members": lambda n=n, p=p, way=way: seconds(p, n, way) for n in (1, MEMBERS)}
            in_turn(candidates, 1)  # fills the cache
            found = in_turn(candidates)
            save(f"ensemble_{size}_{way}", "s a fit", found, "1 members", rows=rows, params=p.num_params)


def typed(size: str, num_members: int) -> None:
    """Print the wall time of the first and the second fit of this process."""
    p = problem(SIZES[size][0], hidden=SIZES[size][1])
    found = {}
    for name in ("first", "second"):
        began = time.perf_counter()
        bz.fit(pyro_model(p), bz.DeepEnsemble(num_members), p.x, p.y, progress=False)
        found[name] = time.perf_counter() - began
    print(json.dumps(found))


def compare_as_typed() -> None:
    """Measure ensembles of one member and of ten in turn, each in a process of its own, and write the results."""
    members = {"1 members": 1, f"{MEMBERS} members": MEMBERS}
    for size in SIZES:

        def run(name: str, _: int, size: str = size) -> dict[str, float]:
            return as_typed("benchmarks.ensemble", size, members[name])

        run(f"{MEMBERS} members", 0)  # fills the cache
        _, runs = runs_in_turn(members, run, "first")
        for fit in ("first", "second"):
            found = {name: [each[fit] for each in rounds] for name, rounds in runs.items()}
            save(f"ensemble_typed_{size}_{fit}", "s a fit", found, "1 members", rows=SIZES[size][0])


def main(*arguments: str) -> None:
    """Measure what was asked for, or everything on one thread."""
    if len(arguments) == 2:
        typed(arguments[0], int(arguments[1]))
    elif arguments == ("typed",):
        compare_as_typed()
    else:
        os.environ["XLA_FLAGS"] = ONE_THREAD
        torch.set_num_threads(1)
        if arguments != ("steps",):
            compare_with_one()
        compare_steps()


if __name__ == "__main__":
    main(*sys.argv[1:])
