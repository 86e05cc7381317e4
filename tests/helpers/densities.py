"""Pyro models of many kinds, each with data: what the density extraction has to get right."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.nn import PyroModule, PyroSample
from torch import Tensor

__all__ = ["cases"]


def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=generator)
    return x, x @ torch.tensor([1.0, -0.5, 0.2]) + 0.1 * torch.randn(20, generator=generator)


def _weights(width: int) -> tuple[Tensor, Tensor]:
    w1 = pyro.sample("w1", dist.Normal(0.0, 1.0).expand([4, 3]).to_event(2))
    return w1, pyro.sample("w2", dist.Normal(0.0, 0.5).expand([width, 4]).to_event(2))


def _hidden(x: Tensor, width: int) -> Tensor:
    w1, w2 = _weights(width)
    return torch.tanh(x @ w1.T) @ w2.T


def regression(x: Tensor, y: Tensor | None = None) -> None:
    f = _hidden(x, 1)[:, 0]
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(f, sigma), obs=y)


def categorical(x: Tensor, y: Tensor | None = None) -> None:
    logits = _hidden(x, 3)
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def heteroscedastic(x: Tensor, y: Tensor | None = None) -> None:
    f = _hidden(x, 2)
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(f[:, 0], torch.nn.functional.softplus(f[:, 1])), obs=y)


def hierarchical(x: Tensor, y: Tensor | None = None) -> None:
    tau = pyro.sample("tau", dist.HalfCauchy(1.0))
    with pyro.plate("inputs", 3):
        slope = pyro.sample("slope", dist.Normal(0.0, tau))
    sigma = pyro.sample("sigma", dist.InverseGamma(3.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.StudentT(4.0, x @ slope, sigma), obs=y)


def ordered(x: Tensor, y: Tensor | None = None) -> None:
    base = dist.Normal(0.0, 1.0).expand([3]).to_event(1)
    cuts = pyro.sample("cuts", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.OrderedLogistic(x @ slope, cuts), obs=y)


def mixture(y: Tensor) -> None:
    weight = pyro.sample("weight", dist.Uniform(0.0, 1.0))
    loc = pyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    mixing = dist.Categorical(probs=torch.stack([weight, 1 - weight]))
    with pyro.plate("data", len(y)):
        pyro.sample("obs", dist.MixtureSameFamily(mixing, dist.Normal(loc, torch.ones(2))), obs=y)


def bernoulli(x: Tensor, y: Tensor | None = None) -> None:
    logits = _hidden(x, 1)[:, 0]
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Bernoulli(logits=logits), obs=y)


def poisson(x: Tensor, y: Tensor | None = None) -> None:
    rate = _hidden(x, 1)[:, 0].exp()
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Poisson(rate), obs=y)


def convolutional(images: Tensor, y: Tensor | None = None) -> None:
    kernel = pyro.sample("kernel", dist.Normal(0.0, 1.0).expand([2, 1, 3, 3]).to_event(4))
    w = pyro.sample("w", dist.Normal(0.0, 0.3).expand([3, 32]).to_event(2))
    hidden = torch.relu(torch.nn.functional.conv2d(images, kernel)).flatten(1)
    with pyro.plate("data", len(images)):
        pyro.sample("obs", dist.Categorical(logits=hidden @ w.T), obs=y)


class Regression(PyroModule):
    """A linear layer whose weights are sampled by PyroSample, as Pyro's users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[torch.nn.Linear](3, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 10.0).expand([1]).to_event(1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> None:
        sigma = pyro.sample("sigma", dist.Uniform(0.0, 10.0))
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(mean, sigma), obs=y)


def simplex(counts: Tensor) -> None:
    probs = pyro.sample("probs", dist.Dirichlet(torch.ones(3)))
    share = pyro.sample("share", dist.Beta(2.0, 3.0))
    pyro.sample("obs", dist.Multinomial(total_count=10, probs=probs * share + (1 - share) / 3), obs=counts)


def correlation(y: Tensor) -> None:
    tril = pyro.sample("tril", dist.LKJCholesky(3, 2.0))
    with pyro.plate("data", len(y)):
        pyro.sample("obs", dist.MultivariateNormal(torch.zeros(3), scale_tril=tril), obs=y)


def masked_and_scaled(x: Tensor, y: Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("data", len(x)), poutine.mask(mask=x[:, 0] > 0), poutine.scale(scale=0.5):
        pyro.sample("obs", dist.Normal(x @ slope, 1.0), obs=y)


def factors(x: Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    pyro.factor("penalty", -slope.abs().sum())
    pyro.deterministic("double", 2 * slope)
    with pyro.plate("data", len(x)):
        pyro.factor("rows", -((x @ slope) ** 2))


def eight_schools(y: Tensor, sigma: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", len(y)):
        eta = pyro.sample("eta", dist.Normal(0.0, 1.0))
        pyro.sample("obs", dist.Normal(mu + tau * eta, sigma), obs=y)


def two_sites(x: Tensor, y: Tensor | None = None, z: Tensor | None = None) -> None:
    f = _hidden(x, 2)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f[:, 0], 1.0), obs=y)
        pyro.sample("z", dist.Bernoulli(logits=f[:, 1]), obs=z)


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]]:
    x, y = _data()
    labels = torch.arange(20) % 3
    images = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    return {
        "regression": (regression, (x, y)),
        "categorical": (categorical, (x, labels)),
        "heteroscedastic": (heteroscedastic, (x, y)),
        "hierarchical": (hierarchical, (x, y)),
        "ordered": (ordered, (x, labels)),
        "mixture": (mixture, (y,)),
        "bernoulli": (bernoulli, (x, (y > 0).to(x.dtype))),
        "poisson": (poisson, (x, labels.to(x.dtype))),
        "convolutional": (convolutional, (images, torch.arange(5) % 3)),
        "pyro_module": (Regression(), (x, y)),
        "simplex": (simplex, (torch.tensor([[3.0, 5.0, 2.0], [1.0, 8.0, 1.0]]),)),
        "correlation": (correlation, (x,)),
        "masked_and_scaled": (masked_and_scaled, (x, y)),
        "factors": (factors, (x,)),
        "eight_schools": (eight_schools, (torch.tensor([28.0, 8, -3, 7]), torch.tensor([15.0, 10, 16, 11]))),
        "two_sites": (two_sites, (x, y, (y > 0).to(x.dtype))),
    }
