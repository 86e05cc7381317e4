"""Overdispersed counts over known exposures."""

import numpy as np
import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate negative binomial counts over exposures between a half and four."""
    rng = np.random.default_rng(256)

    def observe(count: int) -> dict[str, np.ndarray]:
        x, exposure = rng.uniform(-2, 2, (count, 2)), rng.uniform(0.5, 4, count)
        mean = exposure * np.exp(0.5 + 0.8 * np.sin(1.5 * x[:, 0]) - 0.2 * x[:, 1] ** 2)
        return {"x": x, "y": rng.poisson(mean * rng.gamma(3.0, 1 / 3.0, count)), "offset": np.log(exposure)}

    recipe = (
        "y ~ NegBinomial of mean t exp(0.5 + 0.8 sin(1.5 x1) - 0.2 x2²) and concentration 3, with exposures t uniform on "
        "[0.5, 4] and x uniform on [-2, 2]²."
    )
    return CardData(observe(150), observe(50), recipe)


def make_model() -> Model:
    """Return eight tanh units as log rate, and an unknown concentration."""
    likelihood = models.likelihoods.negative_binomial(dist.LogNormal(1.0, 1.0))
    return models.supervised(models.mlp(2, (8,)), models.priors.fan_in(1.0), likelihood)


CARD = Card(
    name="negative-binomial-network",
    title="Overdispersed counts over known exposures",
    description=(
        "One hundred and fifty counts over known exposures, whose logarithm is an offset. The log rate is a smooth "
        "function of two inputs, and the variance exceeds the mean by an unknown concentration: with a Poisson "
        "likelihood the same data would seem to say more about the rate than they do."
    ),
    references=("J. Hilbe (2011), Negative binomial regression.",),
    prior=PriorChoice(
        scale="N(0, 1 / fan-in) for weights, N(0, 1) for biases; LogNormal(1, 1) for the concentration",
        why="Half a central 68% width of means is about 3.4, near the mean count; means above 40 have a probability of 1%.",
        spread=3.4,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
