"""A sum of two networks with one input each."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD", "Additive"]


@dataclass(frozen=True, eq=False)
class Additive:
    """The model ``model(x, y=None)``: an intercept and the sum of a network of each input."""

    first: nn.Module
    second: nn.Module

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the intercept, the weights of both parts and the noise, and observe ``y[N]``."""
        intercept = pyro.sample("intercept", dist.Normal(0.0, 1.0))
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        prior = models.priors.fan_in(2.0)
        first = models.random_module("first", self.first, prior)(x[:, :1]).squeeze(-1)
        second = models.random_module("second", self.second, prior)(x[:, 1:]).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(intercept + first + second, noise), obs=y)


def part(units: int) -> nn.Sequential:
    """Return tanh units of one input whose output has no intercept of its own."""
    return nn.Sequential(nn.Linear(1, units), nn.Tanh(), nn.Linear(units, 1, bias=False))


def make_data() -> CardData:
    """Simulate a sum of two curves in correlated inputs."""
    rng = np.random.default_rng(265)
    shared = rng.normal(size=(170, 1))
    x = np.clip(0.6 * shared + 0.8 * rng.normal(size=(170, 2)), -2.5, 2.5)
    y = np.sin(2 * x[:, 0]) + 0.4 * x[:, 1] ** 2 - 0.4 + 0.3 * rng.normal(size=170)
    recipe = "y = sin(2 x1) + 0.4 (x2² - 1) + N(0, 0.3²); x1 and x2 are normal, correlate by 0.36, and are cut at ±2.5."
    return split_data(x, y, 120, recipe)


def make_model() -> Model:
    """Return two parts of five tanh units."""
    return Additive(part(5), part(5))


CARD = Card(
    name="additive-network",
    title="A sum of two networks with one input each",
    description=(
        "One hundred and twenty observations of two correlated inputs, whose effects add. Each input has a network of five "
        "units of its own, whose curve can be drawn and read. The data determine both curves up to constants, which "
        "the prior divides between them and the intercept; their sum is known well."
    ),
    references=(
        "T. Hastie, R. Tibshirani (1990), Generalized additive models.",
        "R. Agarwal et al. (2021), Neural additive models: interpretable machine learning with neural nets.",
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases and intercept; HalfNormal(0.5) for the noise",
        why="Functions have a prior standard deviation of about 2.3, more than twice that of the responses.",
        spread=2.3,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
