"""Two classes that overlap in one region, with a clean region and one without data."""

import numpy as np

from bnnzoo import datasets
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.cards.overlapping_classes import CARD as OVERLAPPING
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]

SCALE = 4.0
"""By which x is divided."""


def make_data() -> CardData:
    """Return the observations of ``datasets.binary``, and new ones on a grid, whose class changes in the middle of the gap."""
    train, grid = datasets.binary(), np.linspace(-8, 8, 65)
    probability = np.select([grid < 0, grid < 3.5, grid < 4.5], [0.0, 1.0, 0.5], 0.0)
    y_grid = (np.random.default_rng(119).uniform(size=grid.size) < probability).astype(np.int64)
    recipe = (
        "`bz.datasets.binary()`: 200 inputs, half in [-6, -2] with class 0, half in [2, 6] with class 1 below 3.5, either with "
        "probability 0.5 up to 4.5, and class 0 beyond; none in [-2, 2]. x is divided by 4."
    )
    return line_data(train.x[:, 0] / SCALE, train.y, grid / SCALE, y_grid, recipe)


CARD = Card(
    name="three-regions",
    version=2,
    title="Binary labels: a clean region, a gap and an overlap",
    description=(
        "Two hundred labels of one input, with the network and prior of overlapping-classes. From 3.5 to 4.5 both classes are "
        "equally likely: aleatoric uncertainty. From -6 to -2 there is one class only. From -2 to 2 there are no data, and the "
        "classes on both sides differ: epistemic uncertainty, since nothing says where one ends and the other begins."
    ),
    references=OVERLAPPING.references,
    prior=OVERLAPPING.prior,
    model=OVERLAPPING.model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
