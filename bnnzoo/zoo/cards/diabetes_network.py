"""Progression of diabetes from ten measurements."""

import numpy as np
import pyro.distributions as dist

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]

TRAIN, ROWS = 200, 250


def make_data() -> CardData:
    """Take 250 rows of scikit-learn's diabetes data at random and standardise them by the training part."""
    found = datasets.diabetes()
    some = np.random.default_rng(261).permutation(len(found.y))[:ROWS]
    x, y = found.x[some], found.y[some]
    scale = float(y[:TRAIN].std())
    x, y = (x - x[:TRAIN].mean(0)) / x[:TRAIN].std(0), (y - y[:TRAIN].mean()) / scale
    recipe = (
        "250 rows of scikit-learn's diabetes data at random, standardised by the 200 training rows; 50 are for tests."
    )
    return split_data(x, y, TRAIN, recipe, scale)


def make_model() -> Model:
    """Return eight tanh units with noise of unknown size."""
    likelihood = models.likelihoods.gaussian(dist.HalfNormal(1.0))
    return models.supervised(models.mlp(10, (8,)), models.priors.fan_in(1.0), likelihood)


CARD = Card(
    name="diabetes-network",
    title="Progression of diabetes, one hidden layer of eight units",
    description=(
        "Two hundred patients, ten measurements and the progression of their disease after a year. Nearly half the "
        "variance is noise, and the function is close to linear: the posterior mean predicts the test rows about as well "
        "as a linear regression."
    ),
    references=("B. Efron, T. Hastie, I. Johnstone, R. Tibshirani (2004), Least angle regression.",),
    prior=PriorChoice(
        scale="N(0, 1 / fan-in) for weights, N(0, 1) for biases; HalfNormal(1) for the noise",
        why="Functions have a prior standard deviation of about 1.25, a little more than that of the standardised target.",
        spread=1.25,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=2000),
)
