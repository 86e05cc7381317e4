"""Linear regression with normal priors and unknown noise."""

from dataclasses import dataclass

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

ROWS = 20


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
    """Return 100 rows of five inputs, the first twenty of which are those of the predictions."""
    found = posteriordb_data("sblri")
    recipe = (
        "100 observations with five inputs, simulated with coefficients and a noise of one, as in posteriordb; the test rows "
        "are the inputs of the first twenty."
    )
    return CardData({"x": found["X"], "y": found["y"]}, {"x": found["X"][:ROWS]}, recipe)


def make_model() -> Model:
    """Return the model of five inputs."""
    return RidgeRegression(5)


CARD = Card(
    name="ridge-regression",
    title="Linear regression with an unknown noise",
    description=(
        "One hundred observations and five coefficients that are nearly independent in the posterior, each with a standard "
        "deviation of about 0.001, a ten-thousandth of that of the prior: a check on scales rather than on shape. It is blr of posteriordb "
        "with the data sblri."
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
