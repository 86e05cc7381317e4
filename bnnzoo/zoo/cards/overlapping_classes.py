"""Two classes that overlap on one side and have a gap on the other."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate labels whose probability is one half on the left, and none in the gap."""
    rng = np.random.default_rng(116)
    x, grid = np.concatenate([rng.uniform(-3, 0, 60), rng.uniform(2, 3, 20)]), np.linspace(-4, 5, 55)

    def observe(z: np.ndarray) -> np.ndarray:
        probability = np.where(z < -1, 0.5, np.where(z < 1, 0.05, 0.95))
        return (rng.uniform(size=z.size) < probability).astype(np.int64)

    recipe = "P(y = 1) is 0.5 below -1, 0.05 from -1 to 1 and 0.95 above; x is uniform on [-3, 0] and [2, 3]."
    return line_data(x, observe(x), grid, observe(grid), recipe)


def make_model() -> Model:
    """Return ten tanh units."""
    return models.supervised(models.mlp(1, (10,)), models.priors.fan_in(3.0), models.likelihoods.bernoulli())


CARD = Card(
    name="overlapping-classes",
    title="Binary labels: noise on the left, a gap on the right",
    description=(
        "Eighty labels of one input. On the left both classes are equally likely, which no amount of data changes: "
        "aleatoric uncertainty. Between 0 and 2 there are no data: epistemic uncertainty. Both give a probability near "
        "one half, and only the spread of the draws tells them apart."
    ),
    references=(
        "E. Hüllermeier, W. Waegeman (2021), Aleatoric and epistemic uncertainty in machine learning: an introduction "
        "to concepts and methods.",
    ),
    prior=PriorChoice(
        scale="N(0, 3² / fan-in) for weights, N(0, 1) for biases",
        why="Logits have a prior standard deviation of about 2.5: the larger of both probabilities is 0.83 on average.",
        spread=0.83,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
