"""Regression with outliers: Student-t noise whose scale and degrees of freedom are unknown."""

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

__all__ = ["CARD", "StudentNoise"]


@dataclass(frozen=True, eq=False)
class StudentNoise:
    """The model ``model(x, y=None)``: a network as location of Student-t errors with more than two degrees of freedom."""

    net: nn.Module

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the weights, the scale and the degrees of freedom, and observe ``y[N]``."""
        location = models.random_module("net", self.net, models.priors.fan_in(1.5))(x).squeeze(-1)
        scale = pyro.sample("scale", dist.HalfNormal(0.5))
        excess = pyro.sample("excess", dist.Gamma(2.0, 0.1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.StudentT(2 + excess, location, scale, validate_args=False), obs=y)


def make_data() -> CardData:
    """Simulate a smooth surface with heavy-tailed errors."""
    rng = np.random.default_rng(253)
    x = rng.uniform(-2, 2, (170, 2))
    y = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] + 0.25 * rng.standard_t(2.5, 170)
    recipe = "y = sin(1.5 x1) + x2 / 2 plus Student-t errors of scale 0.25 and 2.5 degrees of freedom, x in [-2, 2]²."
    return split_data(x, y, 120, recipe)


def make_model() -> Model:
    """Return eight tanh units as location."""
    return StudentNoise(models.mlp(2, (8,)))


CARD = Card(
    name="student-noise-network",
    title="Student-t errors of unknown scale and degrees of freedom",
    description=(
        "One hundred and twenty observations of a smooth surface with heavy-tailed errors. Scale and degrees of freedom "
        "are estimated together, and depend on each other: with more degrees of freedom the outliers need a larger scale."
    ),
    references=(
        "J. Geweke (1993), Bayesian treatment of the independent Student-t linear model.",
        "M. Juárez, M. Steel (2010), Model-based clustering of non-Gaussian panel data based on skew-t distributions.",
    ),
    prior=PriorChoice(
        scale=(
            "N(0, 1.5² / fan-in) for weights, N(0, 1) for biases; HalfNormal(0.5) for the scale, Gamma(2, 0.1) for the "
            "degrees of freedom above two"
        ),
        why="The location has a prior standard deviation of about 1.6; both normal and heavy tails are plausible.",
        spread=1.6,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
