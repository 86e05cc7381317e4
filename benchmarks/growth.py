"""The cost of a gradient as parameters, chains and rows grow, one of them at a time: bnnzoo and NumPyro in turn, on one thread.

Both evaluate the gradients of all chains in one batch, bnnzoo by calls of its compiled graph, NumPyro inside one compiled
loop. From the middle (502 parameters, 4 chains, 600 rows) one axis grows. Processor time of one gradient of all chains.

Run: python -m benchmarks.growth      (needs numpyro); python -m benchmarks.plot_growth draws the results
"""

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import torch
from numpyro.infer.util import initialize_model

from benchmarks.pairs import in_turn, microseconds, save
from benchmarks.regression import Problem, numpyro_model, problem, pyro_model
from bnnzoo.core.model.density import build_density
from bnnzoo.engine.lowered import Lowered

SECONDS = 0.15  # of one measurement


@dataclass(frozen=True)
class Point:
    """A size at which gradients are measured."""

    hidden: int = 50
    chains: int = 4
    rows: int = 600

    @property
    def problem(self) -> Problem:
        """The regression of this size."""
        return problem(self.rows, hidden=self.hidden)


AXES = {
    "hidden": (10, 50, 100, 1000, 10_000),
    "chains": (1, 4, 16, 64, 256, 1024),
    "rows": (100, 600, 2000, 10_000, 100_000),
}


def points() -> Iterator[tuple[str, Point]]:
    """Yield every point with the axis it lies on."""
    for axis, sizes in AXES.items():
        for size in sizes:
            yield axis, replace(Point(), **{axis: size})


def bnnzoo_measure(point: Point) -> Callable[[], float]:
    """Return what measures one compiled gradient of all chains in microseconds."""
    p = point.problem
    x, y = torch.from_numpy(p.x), torch.from_numpy(p.y)
    density = build_density(pyro_model(p), x, y)
    theta = 0.1 * torch.randn(point.chains, density.num_params)
    step = Lowered(density.batched_value_and_grad).specialize(theta, x, y, num_calls=10**9)
    assert step.how == "compiled"

    def call() -> object:
        with torch.no_grad():
            return step.flat(theta, x, y)

    times = _times(microseconds(call, 3))
    return lambda: microseconds(call, times)


def numpyro_measure(point: Point) -> Callable[[], float]:
    """Return what measures one gradient of all chains inside a compiled loop in microseconds."""
    p = point.problem
    info = initialize_model(jax.random.PRNGKey(0), numpyro_model(p), model_args=(jnp.array(p.x), jnp.array(p.y)))
    gradient = jax.vmap(jax.grad(info.potential_fn))
    start = jax.tree.map(lambda v: jnp.tile(v, (point.chains, *([1] * v.ndim))), info.param_info.z)

    def loop_of(times: int) -> Callable[[], float]:
        @jax.jit
        def loop(z: object) -> object:
            def body(z: object, _: None) -> tuple[object, None]:
                return jax.tree.map(lambda a, g: a - 1e-9 * g, z, gradient(z)), None

            return jax.lax.scan(body, z, None, length=times)[0]

        jax.block_until_ready(loop(start))
        return lambda: microseconds(lambda: jax.block_until_ready(loop(start)), 1) / times

    return loop_of(_times(loop_of(3)()))


def _times(of_one: float) -> int:
    return max(1, round(SECONDS * 1e6 / of_one))


def main() -> None:
    """Measure every point and write the results, one file an axis."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, list[float]]] = {axis: {} for axis in AXES}
    params: dict[int, int] = {}
    for axis, point in points():
        size = getattr(point, axis)
        params[point.hidden] = point.problem.num_params
        runs = in_turn({"numpyro": numpyro_measure(point), "bnnzoo": bnnzoo_measure(point)})
        found[axis] |= {f"{name}, {size}": values for name, values in runs.items()}
    middle = {axis: getattr(Point(), axis) for axis in AXES}
    for axis, runs in found.items():
        save(
            f"growth_{axis}",
            "us a gradient of all chains",
            runs,
            f"numpyro, {middle[axis]}",
            middle=middle,
            params=params,
        )


if __name__ == "__main__":
    main()
