"""Proportions whose mean is a logistic function of the inputs."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD", "BetaRegression"]

SLOPES, PRECISION = np.array([0.8, -0.4]), 12.0


@dataclass(frozen=True, eq=False)
class BetaRegression:
    """The model ``model(x, y=None)``: a logit linear in the predictors, and an unknown precision."""

    predictors: int

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample coefficients and the precision, and observe proportions ``y[N]``."""
        intercept = pyro.sample("intercept", dist.Normal(0.0, 1.0))
        slopes = pyro.sample("slopes", dist.Normal(0.0, 1.0).expand([self.predictors]).to_event(1))
        precision = pyro.sample("precision", dist.LogNormal(2.0, 1.0))
        mean = (intercept + x @ slopes).sigmoid()
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Beta(precision * mean, precision * (1 - mean)), obs=y)


def make_data() -> CardData:
    """Simulate proportions, small ones for the most part."""
    rng = np.random.default_rng(203)
    x = np.concatenate([rng.normal(size=(60, 2)), 1.5 * rng.normal(size=(36, 2))])
    mean = 1 / (1 + np.exp(1.0 - x @ SLOPES))
    y = rng.beta(PRECISION * mean, PRECISION * (1 - mean))
    recipe = (
        "y ~ Beta with mean logistic(-1 + 0.8 x1 - 0.4 x2) and precision 12; standard normal predictors, of standard "
        "deviation 1.5 for predictions."
    )
    return split_data(x, y, 60, recipe)


def make_model() -> Model:
    """Return the model of two predictors."""
    return BetaRegression(len(SLOPES))


CARD = Card(
    name="beta-proportions",
    title="Beta regression with an unknown precision",
    description=(
        "Sixty proportions strictly between zero and one, with a mean that is logistic in two predictors. The "
        "precision is common to all rows: the variance is largest at a mean of one half and vanishes towards the ends. "
        "Some test rows are far out, where means are close to zero or one."
    ),
    references=("S. Ferrari, F. Cribari-Neto (2004), Beta regression for modelling rates and proportions.",),
    prior=PriorChoice(
        scale="N(0, 1) for coefficients, LogNormal(2, 1) for the precision",
        why=(
            "Means have a central 68% between 0.16 and 0.83, half a width of 0.33; a precision of 7 gives a "
            "standard deviation of 0.18 around a mean of one half."
        ),
        spread=0.33,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(vi_steps=(3000, 4000)),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000),
)
