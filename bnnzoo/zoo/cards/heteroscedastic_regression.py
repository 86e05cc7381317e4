"""Linear regression in which the standard deviation depends on the predictors, too."""

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

__all__ = ["CARD", "HeteroscedasticRegression"]


@dataclass(frozen=True, eq=False)
class HeteroscedasticRegression:
    """The model ``model(x, y=None)``: a mean and a log standard deviation, both linear in the predictors."""

    predictors: int

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the coefficients of both, and observe ``y[N]``."""
        mean = self._linear("mean", x, 1.0)
        log_sd = self._linear("log_sd", x, 0.5)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(mean, log_sd.exp()), obs=y)

    def _linear(self, part: str, x: Tensor, scale: float) -> Tensor:
        intercept = pyro.sample(f"{part}_intercept", dist.Normal(0.0, 1.0))
        slopes = pyro.sample(f"{part}_slopes", dist.Normal(0.0, scale).expand([self.predictors]).to_event(1))
        predictor: Tensor = intercept + x @ slopes
        return predictor


def make_data() -> CardData:
    """Simulate three predictors, two of which change the noise."""
    rng = np.random.default_rng(215)
    x = rng.normal(size=(116, 3))
    sd = np.exp(-0.5 + 0.6 * x[:, 0] - 0.3 * x[:, 2])
    y = 0.5 + 0.8 * x[:, 0] - 0.5 * x[:, 1] + sd * rng.normal(size=116)
    recipe = "y = 0.5 + 0.8 x1 - 0.5 x2 + N(0, s²) with log s = -0.5 + 0.6 x1 - 0.3 x3 and standard normal predictors."
    return split_data(x, y, 80, recipe)


def make_model() -> Model:
    """Return the model of three predictors."""
    return HeteroscedasticRegression(3)


CARD = Card(
    name="heteroscedastic-regression",
    title="Linear regression with a linear log standard deviation",
    description=(
        "Eighty observations whose noise grows with one predictor and falls with another. Mean and logarithm of the "
        "standard deviation have linear predictors of their own: the coefficients of the mean are those of a weighted "
        "least-squares fit whose weights are estimated with them."
    ),
    references=(
        "A. Harvey (1976), Estimating regression models with multiplicative heteroscedasticity.",
        "M. Aitkin (1987), Modelling variance heterogeneity in normal regression using GLIM.",
    ),
    prior=PriorChoice(
        scale="N(0, 1) for intercepts and for slopes of the mean, N(0, 0.5²) for slopes of the log standard deviation",
        why="E[y | x] has a prior standard deviation of about 1.8, and the responses one of 1.4.",
        spread=1.8,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(vi_steps=(3000, 4000)),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000),
)
