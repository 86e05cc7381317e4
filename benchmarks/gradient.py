"""One gradient of a Pyro model: bnnzoo, Pyro, and NumPyro's, all on one thread.

Run: python -m benchmarks.gradient      (needs numpyro)
"""

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import torch
from numpyro.infer.util import initialize_model as numpyro_initialize
from pyro.infer.mcmc.util import initialize_model as pyro_initialize

from benchmarks.pairs import in_turn, microseconds, save
from benchmarks.regression import Problem, numpyro_model, problem, pyro_model
from bnnzoo.core.model.density import build_density
from bnnzoo.engine.lowered import Lowered

NUM_IN_SCAN = 200


def bnnzoo_gradient(p: Problem, chains: int) -> tuple[object, str]:
    """Return a call that evaluates one compiled gradient of all chains."""
    x, y = torch.from_numpy(p.x), torch.from_numpy(p.y)
    density = build_density(pyro_model(p), x, y)
    theta = 0.1 * torch.randn(chains, density.num_params)
    step = Lowered(density.batched_value_and_grad).specialize(theta, x, y, num_calls=10**9)

    def call() -> object:
        with torch.no_grad():
            return step.flat(theta, x, y)

    return call, step.how


def pyro_gradient(p: Problem) -> object:
    """Return a call of Pyro's own potential and autograd."""
    init, potential, *_ = pyro_initialize(pyro_model(p), (torch.from_numpy(p.x), torch.from_numpy(p.y)))

    def call() -> object:
        z = {name: value.detach().requires_grad_() for name, value in init.items()}
        return torch.autograd.grad(potential(z), list(z.values()))

    return call


def numpyro_gradient(p: Problem) -> object:
    """Return a call of NUM_IN_SCAN gradients inside one compiled loop, as NumPyro's samplers run them."""
    info = numpyro_initialize(jax.random.PRNGKey(0), numpyro_model(p), model_args=(jnp.array(p.x), jnp.array(p.y)))
    gradient = jax.grad(info.potential_fn)

    @jax.jit
    def loop(z: object) -> object:
        def body(z: object, _: None) -> tuple[object, None]:
            return jax.tree.map(lambda a, g: a - 1e-9 * g, z, gradient(z)), None

        return jax.lax.scan(body, z, None, length=NUM_IN_SCAN)[0]

    start = info.param_info.z
    return lambda: jax.block_until_ready(loop(start))


def main() -> None:
    """Measure gradients a chain at several numbers of chains and write the results."""
    torch.set_num_threads(1)
    p = problem()
    theirs, original = numpyro_gradient(p), pyro_gradient(p)
    theirs()
    ours = {chains: bnnzoo_gradient(p, chains) for chains in (1, 4, 16)}
    candidates = {"numpyro": lambda: microseconds(theirs, 5) / NUM_IN_SCAN, "pyro": lambda: microseconds(original, 50)}
    for chains, (call, _) in ours.items():
        candidates[f"bnnzoo, {chains} chains"] = lambda call=call, chains=chains: microseconds(call, 300) / chains
    found = in_turn(candidates, 7)
    save("gradient", "us a gradient a chain", found, "numpyro", rows=600, params=p.num_params, how=ours[1][1])


if __name__ == "__main__":
    main()
