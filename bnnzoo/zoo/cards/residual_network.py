"""A network with a skip connection."""

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD", "SkipNetwork"]


class SkipNetwork(nn.Module):
    """Tanh units [N, units], a block of as many that is added to them, and a linear output [N, 1]."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.first, self.block, self.head = nn.Linear(inputs, units), nn.Linear(units, units), nn.Linear(units, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [N, inputs] to [N, 1]."""
        hidden = torch.tanh(self.first(x))
        output: Tensor = self.head(hidden + torch.tanh(self.block(hidden)))
        return output


def make_data() -> CardData:
    """Simulate a smooth surface."""
    rng = np.random.default_rng(263)
    x = rng.uniform(-2, 2, (150, 2))
    y = np.sin(x[:, 0] + x[:, 1]) + 0.4 * x[:, 0] + 0.3 * rng.normal(size=150)
    recipe = "y = sin(x1 + x2) + 0.4 x1 + N(0, 0.3²) with x uniform on [-2, 2]²."
    return split_data(x, y, 100, recipe)


def make_model() -> Model:
    """Return six tanh units and a block of six, with noise of unknown size."""
    likelihood = models.likelihoods.gaussian(dist.HalfNormal(0.5))
    return models.supervised(SkipNetwork(2, 6), models.priors.fan_in(1.5), likelihood)


CARD = Card(
    name="residual-network",
    title="A block of six units with a skip connection",
    description=(
        "One hundred observations of a smooth surface under two layers of six units, where the second is added to the "
        "first. The output layer sees their sum: either can explain the data alone, and the posterior has both."
    ),
    references=("K. He, X. Zhang, S. Ren, J. Sun (2016), Deep residual learning for image recognition.",),
    prior=PriorChoice(
        scale="N(0, 1.5² / fan-in) for weights, N(0, 1) for biases",
        why="Functions have a prior standard deviation of about 2, twice that of the responses.",
        spread=2.0,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
