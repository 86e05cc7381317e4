"""Ratings on an ordered scale with a network as latent predictor."""

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

__all__ = ["CARD", "Ordinal"]

CUTS = np.array([-1.5, -0.3, 0.8])


@dataclass(frozen=True, eq=False)
class Ordinal:
    """The model ``model(x, y=None)``: an ordered logit with a network as predictor and unknown cutpoints."""

    net: nn.Module
    classes: int

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the weights and the cutpoints, and observe the rating ``y[N]``."""
        predictor = models.random_module("net", self.net, models.priors.fan_in(2.0))(x).squeeze(-1)
        steps = dist.Normal(0.0, 1.0).expand([self.classes - 1]).to_event(1)
        cuts = pyro.sample("cutpoints", dist.TransformedDistribution(steps, dist.transforms.OrderedTransform()))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.OrderedLogistic(predictor, cuts, validate_args=False), obs=y)


def make_data() -> CardData:
    """Simulate a latent quality with logistic noise, cut into four ratings."""
    rng = np.random.default_rng(128)
    x = rng.normal(size=(200, 2))
    quality = 2 * np.tanh(x[:, 0]) - 0.7 * x[:, 1] ** 2 + 0.7 + rng.logistic(size=200)
    recipe = "Ratings 0 to 3: 2 tanh(x1) - 0.7 x2² + 0.7 plus logistic noise, cut at -1.5, -0.3 and 0.8."
    return split_data(x, np.searchsorted(CUTS, quality), 150, recipe)


def make_model() -> Model:
    """Return eight tanh units and three cutpoints."""
    return Ordinal(models.mlp(2, (8,)), len(CUTS) + 1)


CARD = Card(
    name="ordinal-ratings",
    title="Ordered ratings with a network as predictor",
    description=(
        "One hundred and fifty ratings from 0 to 3. The network computes one latent quality, and three unknown "
        "cutpoints turn it into ratings: classes keep their order, which a categorical likelihood forgets. The "
        "network's bias and the cutpoints are known only together, through the prior apart."
    ),
    references=("P. McCullagh (1980), Regression models for ordinal data.",),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases; ordered standard normal steps for cutpoints",
        why=(
            "The largest of four probabilities is about 0.69 on average: ratings at the ends are plausible, and not "
            "certain."
        ),
        spread=0.69,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
