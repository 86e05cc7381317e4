"""A time series with an autoregressive and a moving average term."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.nn.functional import pad

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData
from bnnzoo.zoo.posteriordb_data import LICENCE_OF_DATA, posteriordb_data

__all__ = ["CARD", "AutoregressiveMovingAverage"]

STEP = 10


@dataclass(frozen=True, eq=False)
class AutoregressiveMovingAverage:
    """The model ``model(time, y=None)``: ARMA(1, 1), each time given those before it.

    ``series[T]`` is the observed past; ``time`` counts from 0, and ``T`` is the first time after it.
    """

    series: Tensor

    def errors(self, mu: Tensor, phi: Tensor, theta: Tensor) -> Tensor:
        """Return the errors of the expected values, ``[T]``: each is a number less ``theta`` times the one before.

        Such a recursion is solved in log2(T) steps, which reach twice as far each.
        """
        before = torch.cat([mu.reshape(1), self.series[:-1].to(mu)])
        errors, factor, reach = self.series.to(mu) - mu - phi * before, -theta, 1
        while reach < len(errors):
            errors = errors + factor * pad(errors[:-reach], (reach, 0))
            factor, reach = factor**2, 2 * reach
        return errors

    def __call__(self, time: Tensor, y: Tensor | None = None) -> None:
        """Sample the level, both coefficients and the noise, and observe ``y[N]`` at ``time[N]``."""
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        phi = pyro.sample("phi", dist.Normal(0.0, 2.0))
        theta = pyro.sample("theta", dist.Normal(0.0, 2.0))
        sigma = pyro.sample("sigma", dist.HalfCauchy(2.5))
        before = torch.cat([mu.reshape(1), self.series.to(mu)])
        expected = mu + phi * before + theta * pad(self.errors(mu, phi, theta), (1, 0))
        with pyro.plate("data", len(time)):
            pyro.sample("y", dist.Normal(expected[time], sigma), obs=y)


def make_data() -> CardData:
    """Return 200 times; predictions are for every tenth, and the last one is the forecast of the next time."""
    y = posteriordb_data("arma")["y"]
    recipe = (
        "200 observations that were simulated from an ARMA(1, 1) process, as in posteriordb; the test rows are the expected "
        "values of every tenth time given those before it, the last one the forecast of the time after the series."
    )
    times = np.arange(len(y) + 1)
    return CardData({"time": times[:-1], "y": y}, {"time": times[STEP::STEP]}, recipe)


def make_model() -> Model:
    """Return the model of the series."""
    return AutoregressiveMovingAverage(torch.as_tensor(posteriordb_data("arma")["y"], dtype=torch.float64))


CARD = Card(
    name="arma",
    title="ARMA(1, 1) model of a time series",
    description=(
        "Two hundred observations of a series whose expected value depends on the last observation and on the last error. "
        "The level and the autoregressive coefficient, which is close to one, trade off. It is arma11 of posteriordb."
    ),
    references=(
        "G. Box, G. Jenkins (1976), Time series analysis: forecasting and control.",
        "M. Magnusson et al. (2024), posteriordb: testing, benchmarking and developing Bayesian inference algorithms.",
    ),
    prior=PriorChoice(
        scale="N(0, 10²) for the level, N(0, 2²) for both coefficients, HalfCauchy(2.5) for the noise",
        why=(
            "That of posteriordb, under which most draws have a moving average coefficient beyond one and expected values "
            "that explode: half their central 68% is about 6e16 after fifty times."
        ),
        spread=5.9e16,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000),
    data_licence=LICENCE_OF_DATA,
)
