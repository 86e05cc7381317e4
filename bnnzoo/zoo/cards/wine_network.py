"""Three cultivars of wine from thirteen measurements."""

import numpy as np

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]

TRAIN = 128


def make_data() -> CardData:
    """Shuffle scikit-learn's wine data and standardise them by the training part."""
    wine = datasets.wine()
    order = np.random.default_rng(260).permutation(len(wine.y))
    x, y = wine.x[order], wine.y[order]
    x = (x - x[:TRAIN].mean(0)) / x[:TRAIN].std(0)
    recipe = (
        "scikit-learn's wine data, shuffled; 128 rows for training, by which inputs are standardised, and 50 for tests."
    )
    return split_data(x, y, TRAIN, recipe)


def make_model() -> Model:
    """Return six tanh units and three logits."""
    return models.supervised(models.mlp(13, (6,), 3), models.priors.fan_in(2.0), models.likelihoods.categorical())


CARD = Card(
    name="wine-network",
    title="Three cultivars of wine, one hidden layer of six units",
    description=(
        "One hundred and twenty-eight wines of three cultivars with thirteen chemical measurements, which separate them "
        "almost perfectly. The likelihood has no maximum at finite weights: how certain a prediction is, and how fast "
        "certainty is lost between the classes, is decided by the prior."
    ),
    references=(
        "S. Aeberhard, D. Coomans, O. de Vel (1994), Comparative analysis of statistical pattern recognition methods in high "
        "dimensional settings.",
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why="The largest of three probabilities is about 0.71 on average: draws from the prior lean to a class.",
        spread=0.71,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=2000),
)
