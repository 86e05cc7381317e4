"""A network whose weights have a Laplace prior, on data with few relevant inputs."""

import numpy as np
import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate five inputs, two of which matter."""
    rng = np.random.default_rng(252)
    x = rng.normal(size=(150, 5))
    y = np.tanh(1.5 * x[:, 0]) + 0.5 * x[:, 1] + 0.4 * rng.normal(size=150)
    recipe = "y = tanh(1.5 x1) + x2 / 2 + N(0, 0.4²), with five standard normal inputs, three of which do not matter."
    return split_data(x, y, 100, recipe)


def make_model() -> Model:
    """Return five tanh units with Laplace priors of scale 0.5."""
    likelihood = models.likelihoods.gaussian(dist.HalfNormal(0.5))
    return models.supervised(models.mlp(5, (5,)), models.priors.laplace(0.5), likelihood)


CARD = Card(
    name="laplace-prior-network",
    title="Five inputs, two of which matter, Laplace prior on the weights",
    description=(
        "One hundred observations of five inputs, two of which matter. The density of the prior has a peak at zero: the "
        "mode of the posterior is sparse, and draws from it are not. The log density has a kink wherever a weight is zero."
    ),
    references=("P. Williams (1995), Bayesian regularization and pruning using a Laplace prior.",),
    prior=PriorChoice(
        scale="Laplace(0, 0.5) for weights and biases; HalfNormal(0.5) for the noise",
        why="Functions have a prior standard deviation of about 1.2, somewhat more than the responses.",
        spread=1.2,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
