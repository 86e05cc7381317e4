"""The cubic on which deep ensembles were introduced."""

import numpy as np

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]

X_SCALE, Y_SCALE = 4.0, 25.0
NOISE = 3.0


def make_data() -> CardData:
    """Return the forty observations of ``datasets.cubic``, in standard units, and new ones on a grid."""
    train, grid = datasets.cubic(), np.linspace(-6, 6, 61)
    y_grid = grid**3 + NOISE * np.random.default_rng(114).normal(size=grid.size)
    recipe = (
        "`bz.datasets.cubic()`: y = x³ + N(0, 3²), 40 observations with x uniform on (-4, 4), of a course's practical; x is "
        "divided by 4, y by 25. Predictions reach from -6 to 6."
    )
    return line_data(train.x[:, 0] / X_SCALE, train.y / Y_SCALE, grid / X_SCALE, y_grid / Y_SCALE, recipe)


def make_model() -> Model:
    """Return 20 tanh units with noise of known size."""
    likelihood = models.likelihoods.gaussian(scale=NOISE / Y_SCALE)
    return models.supervised(models.mlp(1, (20,)), models.priors.fan_in(3.0), likelihood)


CARD = Card(
    name="cubic",
    version=2,
    title="A cubic, extrapolated",
    description=(
        "Forty observations of a cubic on (-4, 4), predicted up to -6 and 6: the toy problem of deep ensembles and of "
        "probabilistic backpropagation. Methods differ in what they say beyond the data, where the exact posterior "
        "widens. The practical's own networks 1-10-6-30-2, trained by 600 steps of Adam at 0.08, are on a page of the "
        "gallery: four of six documented ones end with losses of 5.23 to 9.23, where a constant has 4.58."
    ),
    references=(
        "B. Lakshminarayanan, A. Pritzel, C. Blundell (2017), Simple and scalable predictive uncertainty estimation "
        "using deep ensembles.",
    ),
    prior=PriorChoice(
        scale="N(0, 3² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "Functions have a prior standard deviation of about 2.5, that of the standardised cubic at the edge of "
            "the data."
        ),
        spread=2.4,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000),
)
