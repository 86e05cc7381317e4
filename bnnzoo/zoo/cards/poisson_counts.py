"""Counts whose rate is a function of the inputs."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate counts with a seasonal rate."""
    rng = np.random.default_rng(127)
    x, grid = rng.uniform(-2, 2, 80), np.linspace(-2.5, 2.5, 51)
    y, y_grid = (rng.poisson(np.exp(1.0 + np.sin(2 * z) + 0.3 * z)) for z in (x, grid))
    recipe = "y ~ Poisson(exp(1 + sin(2 x) + 0.3 x)) with x uniform on [-2, 2]; predictions from -2.5 to 2.5."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return ten tanh units as log rate."""
    return models.supervised(models.mlp(1, (10,)), models.priors.fan_in(1.5), models.likelihoods.poisson())


CARD = Card(
    name="poisson-counts",
    title="Poisson counts with a network as log rate",
    description=(
        "Eighty counts between 0 and 15 whose log rate is a smooth function of one input. The variance follows the "
        "mean, so that there is no noise to estimate and all the uncertainty about the rate is epistemic."
    ),
    references=("P. McCullagh, J. Nelder (1989), Generalized linear models, chapter 6.",),
    prior=PriorChoice(
        scale="N(0, 1.5² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "Log rates have a prior standard deviation of about 1.6, rates half a central 68% width near 2.2; twice "
            "the scale would put rates of thousands into the prior."
        ),
        spread=2.2,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000),
)
