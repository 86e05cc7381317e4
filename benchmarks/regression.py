"""The regression every benchmark of the engine runs: one Pyro model, and the same one for NumPyro."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Problem", "effective", "function_values", "numpyro_model", "problem", "pyro_model"]


@dataclass(frozen=True)
class Problem:
    """Inputs, targets and test inputs of a simulated regression, in single precision."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    x_test: NDArray[np.float32]
    hidden: int

    @property
    def num_params(self) -> int:
        """Number of unconstrained parameters of the model."""
        return self.hidden * (self.x.shape[1] + 2) + 2


def problem(num_rows: int = 600, num_inputs: int = 8, hidden: int = 50, seed: int = 0) -> Problem:
    """Return a smooth function of all inputs with one interaction and noise of standard deviation 0.1."""
    rng = np.random.RandomState(seed)
    x = rng.randn(num_rows, num_inputs).astype("f")
    slope = rng.randn(num_inputs) / np.sqrt(num_inputs) * 1.5
    y = (np.sin(x @ slope) + 0.3 * x[:, 0] * x[:, 1] + 0.1 * rng.randn(num_rows)).astype("f")
    return Problem(x, y, rng.randn(50, num_inputs).astype("f"), hidden)


def pyro_model(p: Problem) -> Any:
    """Return the network as a Pyro model: one hidden tanh layer, inferred noise."""
    inputs, hidden = p.x.shape[1], p.hidden

    def model(x: Tensor, y: Tensor | None = None) -> None:
        w1 = pyro.sample("w1", dist.Normal(0.0, 1.0).expand([hidden, inputs]).to_event(2))
        b1 = pyro.sample("b1", dist.Normal(0.0, 1.0).expand([hidden]).to_event(1))
        w2 = pyro.sample("w2", dist.Normal(0.0, hidden**-0.5).expand([hidden]).to_event(1))
        b2 = pyro.sample("b2", dist.Normal(0.0, 1.0))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        f = torch.tanh(x @ w1.T + b1) @ w2 + b2
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(f, sigma), obs=y)

    return model


def numpyro_model(p: Problem) -> Any:
    """Return the same network as a NumPyro model."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as ndist

    inputs, hidden = p.x.shape[1], p.hidden

    def model(x: Any, y: Any = None) -> None:
        w1 = numpyro.sample("w1", ndist.Normal(0.0, 1.0).expand([hidden, inputs]).to_event(2))
        b1 = numpyro.sample("b1", ndist.Normal(0.0, 1.0).expand([hidden]).to_event(1))
        w2 = numpyro.sample("w2", ndist.Normal(0.0, hidden**-0.5).expand([hidden]).to_event(1))
        b2 = numpyro.sample("b2", ndist.Normal(0.0, 1.0))
        sigma = numpyro.sample("sigma", ndist.HalfNormal(1.0))
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("obs", ndist.Normal(jnp.tanh(x @ w1.T + b1) @ w2 + b2, sigma), obs=y)

    return model


def function_values(p: Problem, sites: dict[str, NDArray[np.floating]]) -> NDArray[np.floating]:
    """Return f(x*) ``[C, S, 50]`` for draws ``[C, S, ...]`` of the model's weights, the scale on which methods are compared."""
    hidden = np.tanh(np.einsum("nd,cshd->csnh", p.x_test, sites["w1"]) + sites["b1"][:, :, None, :])
    return np.einsum("csnh,csh->csn", hidden, sites["w2"]) + sites["b2"][..., None]


def effective(
    p: Problem, sites: dict[str, NDArray[np.floating]], seconds: float, steps: float, **more: float
) -> dict[str, float]:
    """Return how many effective draws of f(x*) a sampler gave, at the worst of the test inputs, and how fast."""
    import arviz as az

    values = function_values(p, sites)
    tree = az.from_dict({"posterior": {"f": values}})
    ess = az.ess(tree)["f"]
    if len(values) > 1:
        more["max_rhat"] = float(az.rhat(tree)["f"].max())
    return {
        "ess_per_second": float(ess.min()) / seconds,
        "min_ess": float(ess.min()),
        "median_ess": float(ess.median()),
        "seconds": seconds,
        "steps_per_draw": steps,
        "sigma": float(np.mean(sites["sigma"])),
        **more,
    }
