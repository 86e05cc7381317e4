"""Models, data and summaries of draws for the reference posteriors of posteriordb."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints

from bnnzoo.core.posterior.posterior import Draws

__all__ = ["CASES", "summaries"]

type Columns = dict[str, NDArray[np.floating]]


def flat(*shape: int) -> Any:
    return dist.ImproperUniform(constraints.real, (), ()).expand(shape).to_event(len(shape))


def eight_schools(y: Tensor, sigma: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", len(y)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        theta = pyro.deterministic("theta", mu + tau * z)
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def kidscore(iq: Tensor, y: Tensor) -> None:
    beta = pyro.sample("beta", flat(2))
    sigma = pyro.sample("sigma", dist.HalfCauchy(2.5))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(beta[0] + beta[1] * iq, sigma), obs=y)


def regression(x: Tensor, y: Tensor) -> None:
    beta = pyro.sample("beta", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(10.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def mixture(y: Tensor) -> None:
    base = dist.Normal(0.0, 2.0).expand([2]).to_event(1)
    mu = pyro.sample("mu", Ordered(base))
    sigma = pyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = pyro.sample("theta", dist.Beta(5.0, 5.0))
    mixing = dist.Categorical(probs=torch.stack([theta, 1 - theta]))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(mu, sigma)), obs=y)


class Ordered(dist.TorchDistribution):
    """Independent entries restricted to ascending order, up to a constant."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.ordered_vector if hasattr(constraints, "ordered_vector") else dist.constraints.ordered_vector

    def __init__(self, base: Any) -> None:
        self.base = base
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        return self.base.sample(sample_shape).sort(-1).values

    def log_prob(self, value: Tensor) -> Tensor:
        return self.base.log_prob(value)


def mesquite(x: Tensor, y: Tensor) -> None:
    beta = pyro.sample("beta", flat(x.shape[1]))
    sigma = pyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def mesquite_data(d: Columns) -> tuple[NDArray[np.floating], ...]:
    one, two, height = d["diam1"], d["diam2"], d["canopy_height"]
    logs = [np.log(one * two * height), np.log(one * two), np.log(one / two), np.log(d["total_height"])]
    return np.stack([np.ones_like(one), *logs, d["group"]], 1).astype(float), np.log(d["weight"])


def column(*names: str) -> Callable[[Columns], tuple[NDArray[np.floating], ...]]:
    return lambda d: tuple(np.asarray(d[name], float) for name in names)


CASES: dict[str, tuple[Callable[..., None], str, Callable[[Columns], Any]]] = {
    "eight_schools-eight_schools_noncentered": (eight_schools, "eight_schools", column("y", "sigma")),
    "kidiq-kidscore_momiq": (kidscore, "kidiq", column("mom_iq", "kid_score")),
    "sblri-blr": (regression, "sblri", column("X", "y")),
    "low_dim_gauss_mix-low_dim_gauss_mix": (mixture, "low_dim_gauss_mix", column("y")),
    "mesquite-logmesquite_logvash": (mesquite, "mesquite", mesquite_data),
}


def summaries(posterior: Draws, data: tuple[Any, ...]) -> dict[str, NDArray[np.floating]]:
    """Return all draws of every scalar, named like ``beta[1]``."""
    theta = posterior.draws().flatten(0, 1)
    found = posterior.density.constrain(theta)
    found |= torch.func.vmap(lambda t: posterior.density.deterministics(t, *posterior.density.data))(theta)
    scalars: dict[str, NDArray[np.floating]] = {}
    for name, value in found.items():
        columns = value.reshape(len(theta), -1).numpy().T
        scalars |= {name: columns[0]} if value.ndim == 1 else {f"{name}[{i + 1}]": c for i, c in enumerate(columns)}
    return scalars
