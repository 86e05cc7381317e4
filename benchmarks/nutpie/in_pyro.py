"""A worker that fits one of the eight models with bnnzoo: ``python -m benchmarks.nutpie.in_pyro``."""

import warnings
from collections.abc import Callable

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import bnnzoo as bz
from benchmarks.nutpie.data import DATA
from benchmarks.nutpie.worker import CHAINS, Points, Sampled, serve
from bnnzoo.core.model.density import build_density

__all__: list[str] = []


def normal(name: str, scale: float, size: int) -> Tensor:
    found: Tensor = pyro.sample(name, dist.Normal(0.0, scale).expand([size]).to_event(1))
    return found


def linear(x: Tensor, y: Tensor) -> None:
    b = normal("b", 10.0, x.shape[1])
    s = pyro.sample("s", dist.HalfNormal(10.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ b, s), obs=y)


def schools(y: Tensor, sigma: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    z = normal("z", 1.0, len(y))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mu + tau * z, sigma), obs=y)


def counties(y: Tensor, floor: Tensor, county: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = pyro.sample("tau", dist.HalfNormal(5.0))
    b = pyro.sample("b", dist.Normal(0.0, 10.0))
    a = pyro.sample("a", dist.Normal(mu, tau).expand([85]).to_event(1))
    s = pyro.sample("s", dist.HalfNormal(5.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a[county] + b * floor, s), obs=y)


def logistic(x: Tensor, y: Tensor) -> None:
    a = pyro.sample("a", dist.Normal(0.0, 2.5))
    b = normal("b", 2.5, x.shape[1])
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=a + x @ b), obs=y)


def counts(x: Tensor, group: Tensor, y: Tensor) -> None:
    a = pyro.sample("a", dist.Normal(0.0, 2.5))
    b = normal("b", 2.5, x.shape[1])
    tau = pyro.sample("tau", dist.HalfNormal(2.5))
    z = normal("z", 1.0, 40)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson((a + x @ b + tau * z[group]).exp()), obs=y)


def gaussian(tril: Tensor) -> None:
    pyro.sample("theta", dist.MultivariateNormal(torch.zeros(len(tril)).to(tril), scale_tril=tril))


def volatility(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = pyro.sample("tau", dist.Exponential(10.0))
    nu = pyro.sample("nu", dist.Exponential(0.1))
    z = normal("z", 1.0, len(y))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(nu, 0.0, (mu + tau * z.cumsum(0)).exp()), obs=y)


MODELS: dict[str, Callable[..., None]] = dict(
    zip(DATA, (linear, linear, schools, counties, logistic, counts, gaussian, volatility), strict=True)
)


def sampler(name: str) -> Callable[[str, int], Sampled]:
    """Return what samples a model as typed; the kind is a mass matrix, ``default`` for the one that a user gets."""
    data = DATA[name]()

    def sample(kind: str, seed: int) -> Sampled:
        method = bz.NUTS(num_chains=CHAINS) if kind == "default" else bz.NUTS(num_chains=CHAINS, mass_matrix=kind)  # type: ignore[arg-type]
        posterior = bz.fit(MODELS[name], method, *data, seed=seed)
        draws = posterior.density.constrain(posterior.draws())
        return Sampled(
            {site: np.asarray(value, float) for site, value in draws.items()},
            gradients=int(posterior.info.sample_stats["n_steps"].sum()),
            all_gradients=posterior.info.num_gradients,
            divergent=int(posterior.info.sample_stats["diverging"].sum()),
            warmup=method.num_warmup,
        )

    return sample


def log_density(name: str, points: Points | None) -> tuple[Points, list[float]]:
    """Return three points of unconstrained sites, and log densities there."""
    data = [torch.from_numpy(value) for value in DATA[name]()]
    density = build_density(MODELS[name], *data, dtype=torch.float64)
    thetas = density.init(3, 0)
    found = [{site.name: theta[site.span].tolist() for site in density.sites} for theta in thetas]
    return found, [float(density.log_joint(theta, *density.data)) for theta in thetas]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(sampler, log_density)
