"""A time series: a level that wanders, observed with noise."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, FullRankVI, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "LocalLevel"]

TIMES, STEP, NOISE = 100, 0.25, 0.5
MISSING = np.concatenate([np.arange(8, 50, 7), np.arange(60, 72), np.arange(90, TIMES)])


@dataclass(frozen=True, eq=False)
class LocalLevel:
    """The model ``model(time, y=None)``: a random walk observed with noise at some of its times."""

    times: int

    def __call__(self, time: Tensor, y: Tensor | None = None) -> None:
        """Sample the walk (non-centred), the size of its steps and the noise, and observe ``y[N]``."""
        step = pyro.sample("step_sd", dist.HalfNormal(0.5))
        noise = pyro.sample("noise", dist.HalfNormal(1.0))
        with pyro.plate("times", self.times):
            unit = pyro.sample("unit", dist.Normal(0.0, 1.0))
        level = unit[0] + step * (unit.cumsum(0) - unit[0])
        with pyro.plate("data", len(time)):
            pyro.sample("y", dist.Normal(level[time], noise), obs=y)


def make_data() -> CardData:
    """Simulate one hundred times, of which 28 are missing."""
    rng = np.random.default_rng(209)
    y = np.cumsum(STEP * rng.normal(size=TIMES)) + NOISE * rng.normal(size=TIMES)
    seen = np.setdiff1d(np.arange(TIMES), MISSING)
    recipe = (
        "A walk with steps N(0, 0.25²) plus N(0, 0.5²) at 100 times; the test rows are six single times, a run of "
        "twelve and the last ten, which the fit does not see."
    )
    return CardData({"time": seen, "y": y[seen]}, {"time": MISSING, "y": y[MISSING]}, recipe)


def make_model() -> Model:
    """Return a walk of one hundred times."""
    return LocalLevel(TIMES)


CARD = Card(
    name="local-level",
    title="Local level model of a time series with missing values",
    description=(
        "Seventy-two observations of a level that follows a random walk. How much of the variation is steps of the "
        "level and how much is noise is unknown, and the data tell the two apart only roughly. Predictions are for "
        "times without observations: single ones, a gap of twelve, and the ten after the last observation."
    ),
    references=(
        "J. Durbin, S. Koopman (2012), Time series analysis by state space methods, chapter 2.",
        "M. West, J. Harrison (1997), Bayesian forecasting and dynamic models, chapter 2.",
    ),
    prior=PriorChoice(
        scale="N(0, 1) for the first level, HalfNormal(0.5) for steps, HalfNormal(1) for the noise",
        why="Levels have a prior standard deviation of about 2.4 at a typical time, and the responses one of 1.6.",
        spread=2.4,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=1000, num_draws=2000, target_accept=0.95),
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=10000),
        "full-rank-vi": FullRankVI(num_steps=6000),
    },
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=1500, target_accept=0.95),
)
