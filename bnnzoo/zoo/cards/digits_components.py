"""Three handwritten digits from six principal components."""

import numpy as np

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]

DIGITS = (3, 8, 9)
TRAIN, ROWS, COMPONENTS = 150, 200, 6


def make_data() -> CardData:
    """Project images of three digits on the principal components of the training part, scaled to unit variance."""
    images = datasets.digits()
    kept = np.flatnonzero(np.isin(images.y, DIGITS))
    some = np.random.default_rng(264).permutation(kept)[:ROWS]
    x, y = images.x[some], np.searchsorted(DIGITS, images.y[some])
    centred = x - x[:TRAIN].mean(0)
    axes = np.linalg.svd(centred[:TRAIN], full_matrices=False)[2][:COMPONENTS]
    axes *= np.sign(axes[np.arange(COMPONENTS), np.abs(axes).argmax(1)])[:, None]
    scores = centred @ axes.T
    recipe = (
        "200 images of scikit-learn's digits 3, 8 and 9, projected on the first six principal components of the 150 "
        "training images and scaled to unit variance; the other 50 are for tests."
    )
    return split_data(scores / scores[:TRAIN].std(0), y, TRAIN, recipe)


def make_model() -> Model:
    """Return six tanh units and three logits."""
    return models.supervised(models.mlp(6, (6,), 3), models.priors.fan_in(2.0), models.likelihoods.categorical())


CARD = Card(
    name="digits-components",
    title="The digits 3, 8 and 9 from six principal components",
    description=(
        "One hundred and fifty images of three digits that are easily confused, reduced to six principal components, and "
        "six hidden units. Classes overlap in the reduced space, and the class probabilities of single images "
        "are uncertain themselves."
    ),
    references=("E. Alpaydin, C. Kaynak (1998), Cascading classifiers.",),
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
