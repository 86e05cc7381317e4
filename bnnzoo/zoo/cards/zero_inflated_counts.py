"""Counts with more zeros than a Poisson distribution has."""

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

__all__ = ["CARD", "ZeroInflatedPoisson"]


@dataclass(frozen=True, eq=False)
class ZeroInflatedPoisson:
    """The model ``model(x, y=None)``: a log rate and a logit of additional zeros, both linear in the predictors."""

    predictors: int

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the coefficients of both parts, and observe counts ``y[N]``."""
        log_rate, gate = (self._linear(part, x, scale) for part, scale in (("rate", 0.5), ("zero", 1.0)))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.ZeroInflatedPoisson(log_rate.exp(), gate_logits=gate), obs=y)

    def _linear(self, part: str, x: Tensor, scale: float) -> Tensor:
        intercept = pyro.sample(f"{part}_intercept", dist.Normal(0.0, 1.0))
        slopes = pyro.sample(f"{part}_slopes", dist.Normal(0.0, scale).expand([self.predictors]).to_event(1))
        predictor: Tensor = intercept + x @ slopes
        return predictor


def make_data() -> CardData:
    """Simulate counts, about half of them zero."""
    rng = np.random.default_rng(202)
    x = rng.normal(size=(190, 2))
    counts = rng.poisson(np.exp(0.7 + 0.5 * x[:, 0] - 0.2 * x[:, 1]))
    is_zero = rng.uniform(size=190) < 1 / (1 + np.exp(0.5 + 0.8 * x[:, 0] + 1.2 * x[:, 1]))
    recipe = (
        "y = 0 with probability logistic(-0.5 - 0.8 x1 - 1.2 x2), else Poisson(exp(0.7 + 0.5 x1 - 0.2 x2)); standard "
        "normal predictors."
    )
    return split_data(x, np.where(is_zero, 0, counts), 150, recipe)


def make_model() -> Model:
    """Return the model of two predictors."""
    return ZeroInflatedPoisson(2)


CARD = Card(
    name="zero-inflated-counts",
    title="Zero-inflated Poisson regression",
    description=(
        "One hundred and fifty counts, about half of them zero. Two linear predictors: one for the logarithm of the "
        "rate, one for the logit of the probability that a count is zero whatever its rate. Where the rate is small a "
        "zero can be of either kind, which correlates the two parts."
    ),
    references=(
        "D. Lambert (1992), Zero-inflated Poisson regression, with an application to defects in manufacturing.",
    ),
    prior=PriorChoice(
        scale="N(0, 1) for intercepts and for slopes of the logit, N(0, 0.5²) for slopes of the log rate",
        why=(
            "Half the central 68% of expected counts is about 0.7, with a median near 0.4; one in a hundred exceeds 10."
        ),
        spread=0.72,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(vi_steps=(3000, 4000)),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000),
)
