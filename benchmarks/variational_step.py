"""One step of mean-field variational inference: bnnzoo, NumPyro and Pyro in turn, all on one thread; and a whole fit.

A step of bnnzoo is timed within a fit, from one update of the progress bar to another: with all that a fit does at every step,
and without what it does once. NumPyro's steps run inside one compiled loop, as ``SVI.run`` runs them. All use Adam on a diagonal
Gaussian in unconstrained space. A whole fit has 2,000 steps, runs in a process of its own, and counts wall time from the call
to its return, compilation included and imports not.

Run: python -m benchmarks.variational_step [fits]      (needs numpyro; with "fits" without the steps)
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pyro
import torch

from benchmarks.pairs import ONE_THREAD, StepClock, in_process, in_turn, microseconds, processor_seconds, save
from benchmarks.regression import Problem, numpyro_model, problem, pyro_model
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import build_density

LEARNING_RATE = 0.03
NUM_STEPS = {1: 10_000, 8: 2_500}  # by particles: enough to be compiled, and to be told from the noise of the clock
NUM_IN_SCAN = {1: 2_000, 8: 500}
NUM_STEPS_OF_FIT = 2_000


def bnnzoo_fit(p: Problem, particles: int, num_steps: int) -> None:
    """Fit with bnnzoo."""
    import bnnzoo as bz

    method = bz.MeanFieldVI(num_steps=num_steps, num_particles=particles, learning_rate=LEARNING_RATE)
    bz.fit(pyro_model(p), method, p.x, p.y, progress=False)


def bnnzoo_step(p: Problem, particles: int) -> float:
    """Return the processor time of a step in microseconds."""
    import bnnzoo as bz

    method = bz.MeanFieldVI(num_steps=NUM_STEPS[particles], num_particles=particles, learning_rate=LEARNING_RATE)
    clock = StepClock()
    density = build_density(pyro_model(p), torch.from_numpy(p.x), torch.from_numpy(p.y))
    method.run(density, FitContext(progress=clock))
    return clock.microseconds


def numpyro_svi(p: Problem, particles: int, guide: str = "AutoDiagonalNormal") -> tuple[Any, tuple[Any, Any]]:
    """Return NumPyro's SVI object and the data."""
    import jax.numpy as jnp
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    model = numpyro_model(p)
    adam = numpyro.optim.Adam(LEARNING_RATE)
    svi = SVI(model, getattr(autoguide, guide)(model), adam, Trace_ELBO(num_particles=particles))
    return svi, (jnp.array(p.x), jnp.array(p.y))


def numpyro_step(p: Problem, particles: int, guide: str) -> Callable[[], float]:
    """Return what measures a step inside one compiled loop."""
    import jax

    svi, data = numpyro_svi(p, particles, guide)
    start = svi.init(jax.random.PRNGKey(0), *data)
    size = NUM_IN_SCAN[particles]
    loop = jax.jit(lambda state: jax.lax.scan(lambda state, _: svi.update(state, *data), state, None, length=size))
    jax.block_until_ready(loop(start))
    return lambda: microseconds(lambda: jax.block_until_ready(loop(start)), 1) / size


def numpyro_fit(p: Problem, particles: int, num_steps: int) -> None:
    """Fit with NumPyro."""
    import jax

    svi, data = numpyro_svi(p, particles)
    jax.block_until_ready(svi.run(jax.random.PRNGKey(0), num_steps, *data, progress_bar=False))


def pyro_svi(p: Problem, particles: int, jit: bool = False) -> Callable[[], object]:
    """Return a call of one step of Pyro's SVI."""
    from pyro.infer import SVI, JitTrace_ELBO, Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal

    pyro.clear_param_store()
    data = torch.from_numpy(p.x), torch.from_numpy(p.y)
    model = pyro_model(p)
    elbo = (JitTrace_ELBO if jit else Trace_ELBO)(num_particles=particles)
    svi = SVI(model, AutoDiagonalNormal(model), pyro.optim.Adam({"lr": LEARNING_RATE}), elbo)
    return lambda: svi.step(*data)


def pyro_step(p: Problem, particles: int, jit: bool) -> float:
    """Return the processor time of a step in microseconds, what the first one prepares left out."""
    step = pyro_svi(p, particles, jit)
    for _ in range(3):
        step()
    return microseconds(step, 200 // particles)


def pyro_fit(p: Problem, particles: int, num_steps: int) -> None:
    """Fit with Pyro."""
    step = pyro_svi(p, particles)
    for _ in range(num_steps):
        step()


def compare_steps(p: Problem, particles: int) -> None:
    """Measure a step of each library and write the results."""
    guides = {"numpyro": "AutoDiagonalNormal", "numpyro, AutoNormal": "AutoNormal"}
    candidates = {name: numpyro_step(p, particles, guide) for name, guide in guides.items()}
    candidates["bnnzoo"] = lambda: bnnzoo_step(p, particles)
    candidates["pyro"] = lambda: pyro_step(p, particles, jit=False)
    candidates["pyro, jit"] = lambda: pyro_step(p, particles, jit=True)
    found = in_turn(candidates)
    save(f"variational_step_{particles}", "us a step", found, "numpyro", rows=600, params=p.num_params)


FITS = {"bnnzoo": bnnzoo_fit, "numpyro": numpyro_fit, "pyro": pyro_fit}


def whole_fit(which: str, particles: int) -> dict[str, float]:
    """Return the wall time of a fit in seconds, and the processor time with that of the compilers it starts."""
    import numpyro.infer.autoguide  # noqa: F401

    import bnnzoo  # noqa: F401  # imports count on neither side

    p = problem()
    start = time.perf_counter(), processor_seconds()
    FITS[which](p, particles, NUM_STEPS_OF_FIT)
    return {"wall": time.perf_counter() - start[0], "processor": processor_seconds() - start[1]}


def compare_fits(particles: int) -> None:
    """Measure whole fits and write the results."""
    names = {"numpyro": "numpyro", "bnnzoo": "bnnzoo", "pyro": "pyro"}  # with one particle not worth compiling
    if particles > 1:
        names = {"numpyro": "numpyro", "bnnzoo, compiled before": "bnnzoo", "bnnzoo, never compiled before": "bnnzoo"}
    processor: dict[str, list[float]] = {name: [] for name in names}

    def fit_with(which: str, cache: str) -> dict[str, float]:
        return in_process("benchmarks.variational_step", "--fit", which, particles, TORCHINDUCTOR_CACHE_DIR=cache)

    def measured(name: str, kept: str) -> float:
        with tempfile.TemporaryDirectory() as new:
            found = fit_with(names[name], new if "never" in name else kept)
        processor[name].append(found["processor"])
        return found["wall"]

    with tempfile.TemporaryDirectory() as kept:
        fit_with("bnnzoo", kept)
        found = in_turn({name: lambda name=name: measured(name, kept) for name in names})
    facts = {"num_steps": NUM_STEPS_OF_FIT, "processor_seconds": processor}
    save(f"variational_fit_{particles}", "s a fit, wall", found, "numpyro", **facts)


def main() -> None:
    """Measure steps and fits with one particle and with bnnzoo's default of eight."""
    if "fits" not in sys.argv:
        for particles in NUM_STEPS:
            compare_steps(problem(), particles)
    for particles in NUM_STEPS:
        compare_fits(particles)


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = ONE_THREAD
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--fit"]:
        print(json.dumps(whole_fit(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
