"""Overdispersed counts over known times of observation."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "NegativeBinomialRegression"]

SLOPES = np.array([0.6, -0.3, 0.0])


@dataclass(frozen=True, eq=False)
class NegativeBinomialRegression:
    """The model ``model(x, exposure, y=None)``: a log rate linear in the predictors, and an unknown dispersion."""

    predictors: int

    def __call__(self, x: Tensor, exposure: Tensor, y: Tensor | None = None) -> None:
        """Sample coefficients and the dispersion, and observe counts ``y[N]`` of variance mean + (dispersion mean)²."""
        intercept = pyro.sample("intercept", dist.Normal(0.0, 1.0))
        slopes = pyro.sample("slopes", dist.Normal(0.0, 0.5).expand([self.predictors]).to_event(1))
        dispersion = pyro.sample("dispersion", dist.HalfNormal(1.0))
        log_mean = intercept + x @ slopes + exposure.log()
        with pyro.plate("data", len(x)):
            counts = dist.NegativeBinomial(dispersion**-2, logits=log_mean + 2 * dispersion.log())
            pyro.sample("y", counts, obs=y)


def make_data() -> CardData:
    """Simulate counts at 120 places observed for one to eight years, and at 40 more."""
    rng = np.random.default_rng(201)

    def observe(size: int) -> dict[str, np.ndarray]:
        x, exposure = rng.normal(size=(size, len(SLOPES))), rng.integers(1, 9, size).astype(float)
        rate = np.exp(0.2 + x @ SLOPES) * rng.gamma(2.0, 0.5, size)
        return {"x": x, "exposure": exposure, "y": rng.poisson(exposure * rate)}

    recipe = (
        "y ~ Poisson(exposure exp(0.2 + 0.6 x1 - 0.3 x2) g) with g ~ Gamma(2, 2), standard normal predictors, and an "
        "exposure of one to eight."
    )
    return CardData(observe(120), observe(40), recipe)


def make_model() -> Model:
    """Return the model of three predictors."""
    return NegativeBinomialRegression(len(SLOPES))


CARD = Card(
    name="negative-binomial-counts",
    title="Negative binomial regression with exposure",
    description=(
        "Counts at 120 places, each observed for a known time, the exposure: the logarithm of the rate is linear in "
        "three predictors, and the counts vary more than Poisson ones. The prior is on the coefficient of variation of "
        "the rates, the square root of the inverse concentration, so that it does not rule out Poisson counts."
    ),
    references=("J. Hilbe (2011), Negative binomial regression.",),
    prior=PriorChoice(
        scale=(
            "N(0, 1) for the intercept, N(0, 0.5²) for slopes, HalfNormal(1) for the coefficient of variation of rates"
        ),
        why="Half the central 68% of expected counts is about 8.5, with a median of 4; one in a hundred exceeds 100.",
        spread=8.5,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(vi_steps=(3000, 4000)),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000),
)
