"""Microcanonical Langevin Monte Carlo: effective draws of f(x*) per second, bnnzoo and blackjax in turn, four chains, one thread.

Both tune for as many steps and then keep as many draws, one a decoherence length, at the same energy variance, each with its own
default integrator. Every run is a process of its own; time is processor time from the call that tunes to the last draw,
compilation included.

Run: python -m benchmarks.langevin [warmup] [draws] [pairs]      (needs blackjax and numpyro)
"""

import json
import sys
from typing import Any

import numpy as np

from benchmarks.pairs import ONE_THREAD, in_process, processor_seconds, runs_in_turn, save
from benchmarks.regression import effective, numpyro_model, problem, pyro_model

CHAINS, STEPS_OF_WARMUP = 4, 32


def run_bnnzoo(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with bnnzoo's MCLMC."""
    import torch

    import bnnzoo as bz

    torch.set_num_threads(1)
    p = problem()
    method = bz.MCLMC(num_chains=CHAINS, num_warmup=warmup, num_draws=draws)
    start = processor_seconds()
    posterior = bz.fit(pyro_model(p), method, p.x, p.y, seed=seed, progress=False)
    seconds = processor_seconds() - start
    sites = {name: value.numpy() for name, value in posterior.density.constrain(posterior.draws()).items()}
    return effective(p, sites, seconds, float(posterior.info.sample_stats["n_steps"].double().mean()))


def run_blackjax(warmup: int, draws: int, seed: int) -> dict[str, float]:
    """Sample with blackjax: every chain tunes by itself, all in one vmapped batch."""
    import blackjax
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree
    from numpyro.infer import init_to_sample
    from numpyro.infer.util import initialize_model

    p = problem()
    x, y = jnp.array(p.x), jnp.array(p.y)
    keys = jax.random.split(jax.random.PRNGKey(seed), 3 * CHAINS).reshape(3, CHAINS, -1)
    initialise = [
        initialize_model(k, numpyro_model(p), model_args=(x, y), init_strategy=init_to_sample) for k in keys[0]
    ]
    potential, constrain = initialise[0].potential_fn, initialise[0].postprocess_fn
    _, unravel = ravel_pytree(initialise[0].param_info.z)
    positions = jnp.stack([ravel_pytree(found.param_info.z)[0] for found in initialise])

    def log_density(theta: Any) -> Any:
        return -potential(unravel(theta))

    kernel = blackjax.mcmc.mclmc.build_kernel(integrator=blackjax.mcmc.integrators.isokinetic_mclachlan)

    def tuned(position: Any, key: Any) -> Any:
        state = blackjax.mcmc.mclmc.init(position, log_density, key)
        steps = int(warmup * STEPS_OF_WARMUP / 0.3)  # of which it tunes for three tenths
        return blackjax.mclmc_find_L_and_step_size(
            mclmc_kernel=kernel, num_steps=steps, state=state, rng_key=key, logdensity_fn=log_density
        )[:2]

    def kept(state: Any, parameters: Any, key: Any, thin: int) -> Any:
        def one(state: Any, key: Any) -> Any:
            new, _ = kernel(key, state, log_density, parameters.inverse_mass_matrix, parameters.L, parameters.step_size)
            return new, None

        def many(state: Any, key: Any) -> Any:
            state, _ = jax.lax.scan(one, state, jax.random.split(key, thin))
            return state, state.position

        return jax.lax.scan(many, state, jax.random.split(key, draws))[1]

    start = processor_seconds()
    states, parameters = jax.block_until_ready(jax.jit(jax.vmap(tuned))(positions, keys[1]))
    thin = max(1, round(float((parameters.L / parameters.step_size).mean())))
    chains = jax.jit(jax.vmap(lambda s, q, k: kept(s, q, k, thin)))(states, parameters, keys[2])
    theta = jax.block_until_ready(chains)
    seconds = processor_seconds() - start
    sites = jax.vmap(jax.vmap(lambda t: constrain(unravel(t))))(theta)
    return effective(p, {name: np.asarray(value) for name, value in sites.items()}, seconds, thin)


RUNS = {"blackjax": run_blackjax, "bnnzoo": run_bnnzoo}


def main(warmup: int = 500, draws: int = 500, pairs: int = 5) -> None:
    """Run pairs of samplers in turn and write what they measured."""

    def run(which: str, seed: int) -> dict[str, float]:
        return in_process("benchmarks.langevin", "--run", which, warmup, draws, seed, XLA_FLAGS=ONE_THREAD)

    found, runs = runs_in_turn(RUNS, run, "ess_per_second", pairs)
    save(
        "langevin", "min-ESS of f(x*) a second", found, "blackjax", warmup=warmup, draws=draws, chains=CHAINS, runs=runs
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(RUNS[sys.argv[2]](*(int(value) for value in sys.argv[3:]))))
    else:
        main(*(int(value) for value in sys.argv[1:]))
