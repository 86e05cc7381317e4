"""Effects of coaching in eight schools."""

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
from bnnzoo.zoo.posteriordb_data import LICENCE_OF_DATA, posteriordb_data

__all__ = ["CARD", "EightSchools"]

SCHOOLS = 8


@dataclass(frozen=True, eq=False)
class EightSchools:
    """The model ``model(school, sigma, y=None)``: effects from a common normal distribution, with known standard errors."""

    schools: int

    def __call__(self, school: Tensor, sigma: Tensor, y: Tensor | None = None) -> None:
        """Sample the mean of the effects, their spread and the effects (non-centred), and observe estimates ``y[N]``."""
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = pyro.sample("tau", dist.HalfCauchy(5.0))
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([self.schools]).to_event(1))
        theta = pyro.deterministic("theta", mu + tau * z)
        with pyro.plate("data", len(school)):
            pyro.sample("y", dist.Normal(theta[school], sigma), obs=y)


def make_data() -> CardData:
    """Return the estimates of eight experiments; the predictions are the effects themselves."""
    found = posteriordb_data("eight_schools")
    test = {"school": np.arange(SCHOOLS), "sigma": found["sigma"]}
    recipe = (
        "Estimated effects of coaching on the results of a test in eight schools, and their standard errors (Rubin, 1981), "
        "as in posteriordb; the test rows are the eight schools."
    )
    return CardData(test | {"y": found["y"]}, test, recipe)


def make_model() -> Model:
    """Return the model of eight schools."""
    return EightSchools(SCHOOLS)


CARD = Card(
    name="eight-schools",
    title="Eight schools",
    description=(
        "Eight randomised experiments on the effect of coaching, one in each school, with known standard errors that are as "
        "large as the effects. Effects come from a common normal distribution whose spread is hardly known: it may be zero, "
        "where all schools are alike, and its half-Cauchy prior has a long tail. The parameters are non-centred. It is "
        "eight_schools_noncentered of posteriordb."
    ),
    references=(
        "D. Rubin (1981), Estimation in parallel randomized experiments.",
        "A. Gelman, J. Carlin, H. Stern, D. Dunson, A. Vehtari, D. Rubin (2013), Bayesian data analysis, section 5.5.",
        "M. Magnusson et al. (2024), posteriordb: testing, benchmarking and developing Bayesian inference algorithms.",
    ),
    prior=PriorChoice(
        scale="N(0, 5²) for the mean of the effects, HalfCauchy(5) for their spread",
        why="That of posteriordb: effects are within 9 points of zero with a probability of about 68%, and have long tails.",
        spread=9.1,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000, target_accept=0.95),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000, target_accept=0.95),
    data_licence=LICENCE_OF_DATA,
)
