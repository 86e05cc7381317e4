"""Two classes that overlap in one region, with a clean region and one without data."""

import numpy as np

from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.cards.overlapping_classes import CARD as OVERLAPPING
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]

SCALE = 4.0
"""By which x is divided."""


def make_data() -> CardData:
    """Simulate labels: class 0 to the left of the overlap, class 1 to its right, and either in the overlap."""
    rng = np.random.default_rng(119)
    parts = ((-6, -4, 40), (2, 3.5, 30), (3.5, 4.5, 50), (4.5, 6, 30))
    x, grid = np.concatenate([rng.uniform(*part) for part in parts]), np.linspace(-8, 8, 65)

    def observe(z: np.ndarray) -> np.ndarray:
        probability = np.where(z < 3.5, 0.0, np.where(z < 4.5, 0.5, 1.0))
        return (rng.uniform(size=z.size) < probability).astype(np.int64)

    recipe = (
        "Class 0 below 3.5, class 1 above 4.5, either with probability 0.5 in between; 40 inputs in [-6, -4], 110 in "
        "[2, 6], none in [-2, 2]; x is divided by 4."
    )
    return line_data(x / SCALE, observe(x), grid / SCALE, observe(grid), recipe)


CARD = Card(
    name="three-regions",
    title="Binary labels: a clean region, a gap and an overlap",
    description=(
        "One hundred and fifty labels of one input, with the network and prior of overlapping-classes. From 3.5 to 4.5 "
        "both classes are equally likely: aleatoric uncertainty. From -6 to -4 there is one class only. From -2 to 2 "
        "there are no data, and the class is the same on both sides: epistemic uncertainty there depends on how far "
        "functions of the prior turn in between."
    ),
    references=OVERLAPPING.references,
    prior=OVERLAPPING.prior,
    model=OVERLAPPING.model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
