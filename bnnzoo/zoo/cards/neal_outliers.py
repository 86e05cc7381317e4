"""Regression with outliers under a Student-t likelihood, after Neal's example."""

import numpy as np
import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import small_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate a smooth function with an outlier in twenty."""
    rng = np.random.default_rng(109)
    x, grid = rng.normal(size=100), np.linspace(-3.0, 3.0, 49)

    def observe(z: np.ndarray) -> np.ndarray:
        mean = 0.3 + 0.4 * z + 0.5 * np.sin(2.7 * z) + 1.1 / (1 + z**2)
        return mean + np.where(rng.uniform(size=z.size) < 0.05, 1.0, 0.1) * rng.normal(size=z.size)

    recipe = (
        "y = 0.3 + 0.4 x + 0.5 sin(2.7 x) + 1.1 / (1 + x²) with standard normal x; noise of sd 0.1, and of sd 1 in one "
        "case of twenty."
    )
    return line_data(x, observe(x), grid, observe(grid), recipe)


def make_model() -> Model:
    """Return eight tanh units with Student-t noise of four degrees of freedom."""
    noise = models.likelihoods.student_t(df=4.0, scale=dist.HalfNormal(0.5))
    return models.supervised(models.mlp(1, (8,)), models.priors.fan_in(2.0), noise)


CARD = Card(
    name="neal-outliers",
    title="Regression with outliers, Student-t noise",
    description=(
        "One hundred observations of a smooth function, one in twenty with ten times the noise. A Student-t likelihood "
        "with four degrees of freedom lets single observations be far off without bending the function, after an "
        "example of Neal's software."
    ),
    references=("R. Neal (1997), Monte Carlo implementation of Gaussian process models.",),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases; HalfNormal(0.5) for the noise",
        why=("Functions have a prior standard deviation of about 1.8, and the responses a range of 2.6."),
        spread=1.8,
    ),
    model=make_model,
    source=make_data,
    methods=small_methods(),
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
