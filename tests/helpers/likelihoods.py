"""Small models with likelihoods that have no closed form of the Fisher information, each with data to learn from and new data."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.models import mlp, priors, random_module

__all__ = ["LIKELIHOODS", "split"]

NUM_TRAIN = 40
CUTS = (-1.0, 1.0)


def _x(num_rows: int = 2 * NUM_TRAIN) -> Tensor:
    return torch.rand(num_rows, 1, generator=torch.Generator().manual_seed(0)) * 4 - 2


NETS = {num_outputs: mlp(1, (4,), num_outputs) for num_outputs in (1, 2, 6)}  # made once: layers start at random


def _network(num_outputs: int) -> Callable[[Tensor], Tensor]:
    net: Callable[[Tensor], Tensor] = random_module("net", NETS[num_outputs], priors.normal(1.0))
    return net


def mixture_density_network(x: Tensor, y: Tensor | None = None) -> None:
    f = _network(6)(x)
    parts = dist.Normal(f[:, 2:4], (f[:, 4:] / 2 - 1).exp())
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.MixtureSameFamily(dist.Categorical(logits=f[:, :2]), parts), obs=y)


def two_outputs(x: Tensor, y: Tensor | None = None) -> None:
    f = _network(2)(x)
    scale = pyro.sample("scale", dist.LogNormal(-1.0, 0.5).expand([2]).to_event(1))
    tril = pyro.sample("tril", dist.LKJCholesky(2, 2.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.MultivariateNormal(f, scale_tril=scale[:, None] * tril), obs=y)


def zero_inflated_poisson(x: Tensor, y: Tensor | None = None) -> None:
    f = _network(2)(x)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.ZeroInflatedPoisson(f[:, 0].exp(), gate_logits=f[:, 1]), obs=y)


def beta(x: Tensor, y: Tensor | None = None) -> None:
    f = _network(1)(x)[:, 0]
    precision = pyro.sample("precision", dist.LogNormal(2.0, 1.0))
    mean = torch.sigmoid(f)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Beta(mean * precision, (1 - mean) * precision), obs=y)


def negative_binomial(x: Tensor, y: Tensor | None = None) -> None:
    f = _network(1)(x)[:, 0]
    dispersion = pyro.sample("dispersion", dist.LogNormal(1.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.NegativeBinomial(dispersion, logits=f), obs=y)


def ordinal(x: Tensor, y: Tensor | None = None) -> None:
    f = 2 * _network(1)(x)[:, 0]
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.OrderedLogistic(f, x.new_tensor(CUTS)), obs=y)


def _drawn(x: Tensor) -> dict[str, Tensor]:
    """Return observations of every kind at ``x[N, 1]``."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        wave, noise = torch.sin(2 * x[:, 0]), torch.randn(len(x), 2)
        side = torch.where(torch.rand(len(x)) < 0.5, 1.0, -1.0)
        correlated = torch.stack([noise[:, 0], 0.8 * noise[:, 0] + 0.6 * noise[:, 1]], -1)
        zero = torch.rand(len(x)) < 0.3
        mean = torch.sigmoid(wave)
        return {
            "mixture_density_network": side * (1 + x[:, 0] / 2) + 0.2 * noise[:, 0],
            "two_outputs": torch.stack([wave, x[:, 0] / 2], -1) + 0.3 * correlated,
            "zero_inflated_poisson": torch.where(zero, 0.0, torch.poisson((1 + wave).exp())),
            "beta": dist.Beta(mean * 10, (1 - mean) * 10).sample(),
            "negative_binomial": dist.NegativeBinomial(3.0, logits=wave).sample(),
            "ordinal": dist.OrderedLogistic(3 * wave, torch.tensor(CUTS)).sample(),
        }


LIKELIHOODS: dict[str, Callable[..., Any]] = {
    model.__name__: model
    for model in (mixture_density_network, two_outputs, zero_inflated_poisson, beta, negative_binomial, ordinal)
}


def split(name: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the rows to learn from and the held-out rows of a model's data."""
    x = _x()
    y = _drawn(x)[name]
    return (x[:NUM_TRAIN], y[:NUM_TRAIN]), (x[NUM_TRAIN:], y[NUM_TRAIN:])
