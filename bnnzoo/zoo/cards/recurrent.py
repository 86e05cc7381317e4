"""A recurrent network for short series."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, DeepEnsemble, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "NextValue", "Recurrent"]

LENGTH = 8


class Recurrent(nn.Module):
    """Elman network: tanh units [B, units], updated by each value of series [B, T]; the output [B] is the next value."""

    def __init__(self, units: int = 6) -> None:
        super().__init__()
        self.units, self.input, self.state, self.head = (
            units,
            nn.Linear(1, units),
            nn.Linear(units, units),
            nn.Linear(units, 1),
        )

    def forward(self, series: Tensor) -> Tensor:
        """Map series [B, T] to the next value [B]."""
        states = series.new_zeros(len(series), self.units)
        for value in series.unbind(-1):
            states = torch.tanh(self.input(value[:, None]) + self.state(states))
        output: Tensor = self.head(states).squeeze(-1)
        return output


@dataclass(frozen=True, eq=False)
class NextValue:
    """The model ``model(series, y=None)``."""

    net: nn.Module

    def __call__(self, series: Tensor, y: Tensor | None = None) -> None:
        """Sample the weights and the noise, and observe the next value ``y[N]``."""
        mean = models.random_module("net", self.net, models.priors.fan_in(1.0, 0.5))(series)
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        with pyro.plate("data", len(series)):
            pyro.sample("y", dist.Normal(mean, noise), obs=y)


def make_data() -> CardData:
    """Simulate oscillations of different frequency and phase."""
    rng = np.random.default_rng(126)
    phase, frequency = rng.uniform(0, 2 * np.pi, (150, 1)), rng.uniform(0.4, 1.2, (150, 1))
    values = np.sin(frequency * np.arange(LENGTH + 1) + phase) + 0.05 * rng.normal(size=(150, LENGTH + 1))
    series, y = values[:, :LENGTH], values[:, LENGTH]
    recipe = (
        "Sines of random frequency (0.4 to 1.2 per step) and phase with noise of sd 0.05: eight values, and the next "
        "one."
    )
    train, test = slice(100), slice(100, None)
    return CardData(
        {"series": series[train], "y": y[train]},
        {"series": series[test], "y": y[test]},
        recipe,
    )


def make_model() -> Model:
    """Return six recurrent units."""
    return NextValue(Recurrent())


CARD = Card(
    name="recurrent",
    title="Recurrent network, the next value of a short series",
    description=(
        "One hundred series of eight values, and the ninth is to be predicted. The same weights act at every step, so "
        "that the posterior of few weights is far from normal."
    ),
    references=("J. Elman (1990), Finding structure in time.",),
    prior=PriorChoice(
        scale="N(0, 1 / fan-in) for weights, N(0, 0.5²) for biases; HalfNormal(0.5) for the noise",
        why=(
            "The next value has a prior standard deviation of about 0.77, that of a sine; larger recurrent weights "
            "would be chaotic."
        ),
        spread=0.77,
    ),
    model=make_model,
    source=make_data,
    methods={
        "mams": MAMS(num_warmup=500, num_draws=1000),
        "laplace": Laplace(map=MAP(num_members=4, num_steps=2000)),
        "mfvi": MeanFieldVI(num_steps=3000),
        "ensemble": DeepEnsemble(5, num_steps=2000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000),
)
