"""The diabetes data with coefficients that are shrunk by an unknown amount."""

from dataclasses import dataclass

import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo import datasets
from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "BayesianLasso"]


@dataclass(frozen=True, eq=False)
class BayesianLasso:
    """The model ``model(x, y=None)``: Laplace priors of unknown scale on the coefficients, and normal noise."""

    predictors: int

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the intercept, the coefficients, their scale and the noise, and observe ``y[N]``."""
        noise = pyro.sample("noise", dist.HalfNormal(1.0))
        scale = pyro.sample("scale", dist.HalfNormal(0.5))
        intercept = pyro.sample("intercept", dist.Normal(0.0, 0.5))
        slopes = pyro.sample("slopes", dist.Laplace(0.0, scale).expand([self.predictors]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(intercept + x @ slopes, noise), obs=y)


def make_data() -> CardData:
    """Return ten measurements and the progression, standardised, with a tenth of the patients for predictions."""
    split = datasets.diabetes().split(test_size=0.1, seed=211).standardized()
    recipe = (
        "All ten measurements and the progression of scikit-learn's diabetes data, standardised; a tenth of the 442 "
        "patients, at random, are the test rows."
    )
    train, test = {"x": split.x_train, "y": split.y_train}, {"x": split.x_test, "y": split.y_test}
    return CardData(train, test, recipe, y_scale=split.y_scale)


def make_model() -> Model:
    """Return the model of ten predictors."""
    return BayesianLasso(10)


CARD = Card(
    name="diabetes-shrinkage",
    title="Bayesian lasso on the diabetes data",
    description=(
        "Progression of a disease in 397 patients and ten measurements, some of which are highly correlated blood "
        "values. Coefficients have Laplace priors with an unknown common scale, the data's own amount of shrinkage: "
        "the posterior density has a ridge wherever a coefficient is zero, and directions along which the blood values "
        "trade off."
    ),
    references=(
        "T. Park, G. Casella (2008), The Bayesian lasso.",
        "B. Efron, T. Hastie, I. Johnstone, R. Tibshirani (2004), Least angle regression (the data).",
    ),
    prior=PriorChoice(
        scale=(
            "Laplace with a HalfNormal(0.5) scale for coefficients, N(0, 0.5²) for the intercept, HalfNormal(1) for "
            "noise"
        ),
        why=(
            "E[y | x] has a central 68% of half a width of 1.4, and the standardised responses a standard deviation of "
            "one."
        ),
        spread=1.43,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000),
)
