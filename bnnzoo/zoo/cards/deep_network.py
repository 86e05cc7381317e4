"""A deep and narrow network."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]

NOISE = 0.3


def make_data() -> CardData:
    """Simulate sixty observations of a smooth curve."""
    rng = np.random.default_rng(258)
    x, grid = rng.uniform(-2, 2, 60), np.linspace(-2.6, 2.6, 53)
    y, y_grid = (np.sin(2 * z) - 0.3 * z + NOISE * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(2 x) - 0.3 x + N(0, 0.3²) with 60 inputs uniform on [-2, 2]; predictions from -2.6 to 2.6."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return four layers of eight tanh units with noise of known size."""
    net = models.mlp(1, (8, 8, 8, 8))
    return models.supervised(net, models.priors.fan_in(1.5, 0.5), models.likelihoods.gaussian(scale=NOISE))


CARD = Card(
    name="deep-network",
    title="Four hidden layers of eight units",
    description=(
        "Sixty observations of a smooth curve under four layers of eight units, 241 parameters. The function depends on "
        "products of weights of five layers, whose posterior is curved and has more symmetries than that of one layer."
    ),
    references=("R. Neal (1996), Bayesian learning for neural networks, section 2.3.",),
    prior=PriorChoice(
        scale="N(0, 1.5² / fan-in) for weights, N(0, 0.5²) for biases",
        why="Functions have a prior standard deviation of about 1.1, nearly twice that of the responses.",
        spread=1.1,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000),
)
