"""Posteriors that need no fit: exact Gaussians of linear-Gaussian models, and arbitrary ones of other models."""

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo import models
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Dense, Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws, Gaussian
from bnnzoo.testing import LinearGaussian

IID = FitInfo(
    method="Laplace",
    sampling="iid",
    seed=3,
    num_gradients=12,
    seconds=0.5,
    config={"damping": None, "dense": True, "map": {"num_steps": 100}},
    fit_stats={"loss": torch.linspace(2.0, 1.0, 5)[None]},
)


def exact_posterior(target: LinearGaussian) -> Gaussian:
    """The exact posterior of a linear-Gaussian model."""
    density = build_density(target.model, *target.data)
    return Gaussian(density, IID, target.mean["w"], Dense(torch.linalg.cholesky(target.covariance)))


def exact_loo(target: LinearGaussian) -> Tensor:
    """log p(y_i | y_-i) ``[N]`` of a linear-Gaussian model, refitting in closed form."""
    x, y = target.data
    found = []
    for i in range(len(y)):
        rest = torch.arange(len(y)) != i
        covariance = torch.linalg.inv(x[rest].T @ x[rest] / target.noise**2 + torch.eye(x.shape[1]))
        mean = covariance @ x[rest].T @ y[rest] / target.noise**2
        sd = (x[i] @ covariance @ x[i] + target.noise**2).sqrt()
        found.append(torch.distributions.Normal(x[i] @ mean, sd).log_prob(y[i]))
    return torch.stack(found)


def narrow_posterior(model: Any, *data: Any, scale: float = 0.1) -> Gaussian:
    """A Gaussian around zero, for models whose posterior does not matter to the test."""
    density = build_density(model, *data)
    zeros = torch.zeros(density.num_params)
    return Gaussian(density, IID, zeros, Diagonal(torch.full_like(zeros, scale)))


def chains(posterior: Gaussian, num_chains: int = 4, num_draws: int = 100) -> Draws:
    """Independent draws of a Gaussian dressed up as Markov chains with NUTS's statistics."""
    theta = torch.cat([posterior.draws(num_draws, seed) for seed in range(num_chains)])
    stats = {
        "lp": torch.randn(num_chains, num_draws),
        "diverging": torch.zeros(num_chains, num_draws, dtype=torch.bool),
        "energy": torch.randn(num_chains, num_draws),
    }
    return Draws(posterior.density, FitInfo("mcmc", method="NUTS", seed=1, sample_stats=stats), theta)


def network(likelihood: models.likelihoods.Likelihood, in_features: int = 3, out_features: int = 1) -> Any:
    """A small network under a normal prior."""
    net = models.mlp(in_features, out_features=out_features, hidden=(4,))
    return models.supervised(net, models.priors.normal(1.0), likelihood)


def two_sites(x: Tensor, y: Tensor | None = None, count: Tensor | None = None) -> None:
    """A real and a count target with one latent slope and a deterministic intercept."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    intercept = pyro.deterministic("intercept", 2.0 * slope)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(intercept + slope * x, 1.0), obs=y)
        pyro.sample("count", dist.Poisson(torch.exp(slope * x)), obs=count)


def standardising(x: Tensor, y: Tensor | None = None) -> None:
    """A model that mixes its rows: it centres its input itself."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(slope * (x - x.mean()), 1.0), obs=y)
