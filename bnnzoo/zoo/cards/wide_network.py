"""A wide network, which is nearly a Gaussian process."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]

NOISE = 0.2


def make_data() -> CardData:
    """Simulate thirty observations of a smooth curve."""
    rng = np.random.default_rng(257)
    x, grid = rng.uniform(-2, 2, 30), np.linspace(-2.6, 2.6, 53)
    y, y_grid = (np.sin(2 * z) + 0.3 * z + NOISE * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(2 x) + 0.3 x + N(0, 0.2²) with 30 inputs uniform on [-2, 2]; predictions from -2.6 to 2.6."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return 300 tanh units with noise of known size."""
    return models.supervised(models.mlp(1, (300,)), models.priors.fan_in(2.0), models.likelihoods.gaussian(scale=NOISE))


CARD = Card(
    name="wide-network",
    title="One hidden layer of 300 units and thirty observations",
    description=(
        "Thirty observations and 901 parameters. With the prior scaled by the fan-in, functions of a layer this wide are "
        "nearly draws from a Gaussian process, and the posterior of each weight stays near its prior: what the data say "
        "is spread over all weights, where a mean-field approximation loses it."
    ),
    references=(
        "R. Neal (1996), Bayesian learning for neural networks, chapter 2.",
        "B. Coker, W. Bruinsma, D. Burt, W. Pan, F. Doshi-Velez (2022), Wide mean-field Bayesian neural networks ignore "
        "the data.",
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why="Functions have a prior standard deviation of about 1.9, nearly three times that of the responses.",
        spread=1.9,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=2000),
)
