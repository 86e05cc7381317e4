"""Linear regression with normal priors and unknown noise."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData
from bnnzoo.zoo.posteriordb_data import LICENCE_OF_DATA, posteriordb_data

__all__ = ["CARD", "RidgeRegression"]

PREDICTORS = 5


@dataclass(frozen=True, eq=False)
class RidgeRegression:
    """The model ``model(x, y=None)``: coefficients with normal priors, and normal noise of unknown size."""

    predictors: int

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the coefficients and the noise, and observe ``y[N]``."""
        beta = pyro.sample("beta", dist.Normal(0.0, 10.0).expand([self.predictors]).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(10.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def make_data() -> CardData:
    """Return 100 rows of five inputs; what is predicted are the differences between two coefficients each.

    Expected values of the observations are hundreds with a standard deviation of a tenth, which four stored digits do not
    resolve.
    """
    found, unit = posteriordb_data("sblri"), np.eye(PREDICTORS)
    pairs = [unit[i] - unit[j] for i, j in combinations(range(PREDICTORS), 2)]
    recipe = (
        "100 observations with five inputs, simulated with coefficients and a noise of one, as in posteriordb; the test rows "
        "have an input of one and another of minus one, so that predictions are differences between coefficients."
    )
    return CardData({"x": found["X"], "y": found["y"]}, {"x": np.stack(pairs)}, recipe)


def make_model() -> Model:
    """Return the model of five inputs."""
    return RidgeRegression(PREDICTORS)


CARD = Card(
    name="ridge-regression",
    title="Linear regression with an unknown noise",
    description=(
        "One hundred observations and five coefficients that are nearly independent in the posterior, each with a standard "
        "deviation of about 0.001, a ten-thousandth of that of the prior: a check on scales rather than on shape. It is blr "
        "of posteriordb with the data sblri."
    ),
    references=(
        "A. Hoerl, R. Kennard (1970), Ridge regression: biased estimation for nonorthogonal problems.",
        "M. Magnusson et al. (2024), posteriordb: testing, benchmarking and developing Bayesian inference algorithms.",
    ),
    prior=PriorChoice(
        scale="N(0, 10²) for coefficients, HalfNormal(10) for the noise",
        why="That of posteriordb: expected values have a central 68% of half a width of about 2000.",
        spread=2000.0,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000),
    data_licence=LICENCE_OF_DATA,
)
