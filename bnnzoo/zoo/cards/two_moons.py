"""Two interleaved half circles."""

import numpy as np

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data() -> CardData:
    """Return 100 observations, and 60 new ones for predictions."""
    train, test = datasets.moons(100, noise=0.2, seed=117), datasets.moons(60, noise=0.2, seed=118)
    recipe = "Two interleaved half circles with noise of sd 0.2, as scikit-learn simulates them."
    scale = np.array([0.9, 0.5])
    return CardData({"x": train.x / scale, "y": train.y}, {"x": test.x / scale, "y": test.y}, recipe)


def make_model() -> Model:
    """Return ten tanh units."""
    return models.supervised(models.mlp(2, (10,)), models.priors.fan_in(3.0), models.likelihoods.bernoulli())


CARD = Card(
    name="two-moons",
    title="Two moons, one hidden layer of ten units",
    description=(
        "One hundred observations of two interleaved half circles, the usual first picture of a classifier. Forty-one "
        "parameters, symmetries and all: small enough for a reference posterior, and large enough for methods to "
        "differ in the corners."
    ),
    references=("scikit-learn, sklearn.datasets.make_moons.",),
    prior=PriorChoice(
        scale="N(0, 3² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "The larger of both probabilities is 0.83 on average: most functions of the prior decide, and do so in "
            "different places."
        ),
        spread=0.83,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
