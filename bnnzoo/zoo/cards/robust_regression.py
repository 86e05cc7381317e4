"""Linear regression with Student-t noise of unknown degrees of freedom."""

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

__all__ = ["CARD", "RobustRegression"]

SLOPES = np.array([1.0, -0.6, 0.3, 0.0])
TRAIN, ROWS, OUTLIERS = 60, 96, 6


@dataclass(frozen=True, eq=False)
class RobustRegression:
    """The model ``model(x, y=None)``: a linear predictor and Student-t noise."""

    predictors: int

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample coefficients, scale and degrees of freedom, which exceed 1, and observe ``y[N]``."""
        intercept = pyro.sample("intercept", dist.Normal(0.0, 1.0))
        slopes = pyro.sample("slopes", dist.Normal(0.0, 1.0).expand([self.predictors]).to_event(1))
        scale = pyro.sample("scale", dist.HalfNormal(1.0))
        excess = pyro.sample("excess_df", dist.Gamma(2.0, 0.1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.StudentT(1.0 + excess, intercept + x @ slopes, scale), obs=y)


def make_data() -> CardData:
    """Simulate four predictors and a response with six outliers among the observations of the fit."""
    rng = np.random.default_rng(200)
    x = rng.normal(size=(ROWS, len(SLOPES)))
    x[:, 1] = 0.6 * x[:, 0] + 0.8 * x[:, 1]
    y = x @ SLOPES + 0.4 * rng.normal(size=ROWS)
    y[rng.choice(TRAIN, OUTLIERS, replace=False)] += rng.choice([-4.0, 4.0], OUTLIERS)
    x = (x - x[:TRAIN].mean(0)) / x[:TRAIN].std(0)
    centre, scale = y[:TRAIN].mean(), y[:TRAIN].std()
    recipe = (
        "y = x1 - 0.6 x2 + 0.3 x3 + N(0, 0.4²), with 4 added to or taken from six of the 60 training responses; x1 and "
        "x2 correlate by 0.6; all variables standardised."
    )
    return split_data(x, (y - centre) / scale, TRAIN, recipe, float(scale))


def make_model() -> Model:
    """Return the model of four predictors."""
    return RobustRegression(len(SLOPES))


CARD = Card(
    name="robust-regression",
    title="Robust linear regression, unknown degrees of freedom",
    description=(
        "Sixty observations of four predictors, six of them outliers, with Student-t noise whose degrees of freedom "
        "are estimated. Outliers pull these towards the bound of 1, below which there is no mean, and the scale goes "
        "with them. The test rows have no outliers."
    ),
    references=(
        "J. Geweke (1993), Bayesian treatment of the independent Student-t linear model.",
        "M. Juárez, M. Steel (2010), Model-based clustering of non-Gaussian panel data based on skew-t distributions.",
    ),
    prior=PriorChoice(
        scale=(
            "N(0, 1) for coefficients, HalfNormal(1) for the scale, Gamma(2, 0.1) for the degrees of freedom beyond 1"
        ),
        why="E[y | x] has a prior standard deviation of about 2, twice that of the standardised responses.",
        spread=2.0,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(vi_steps=(3000, 4000)),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000),
)
