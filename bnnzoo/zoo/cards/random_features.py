"""Random Fourier features of one input: a model that is linear in its weights."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, FullRankVI, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD", "RandomFeatures"]

FEATURES = 60
LENGTH_SCALE = 0.6


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """The model ``model(x, y=None)``: a linear model in cosines of fixed frequencies and phases, both of shape [K]."""

    frequencies: Tensor
    phases: Tensor

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the amplitude, the noise and the weights (centred), and observe ``y[N]``."""
        amplitude = pyro.sample("amplitude", dist.HalfNormal(1.5))
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        with pyro.plate("features", len(self.phases)):
            weights = pyro.sample("weights", dist.Normal(0.0, amplitude))
        cosines = torch.cos(x * self.frequencies.to(x) + self.phases.to(x))
        curve = (2 / len(self.phases)) ** 0.5 * (cosines * weights).sum(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(curve, noise), obs=y)


def make_data() -> CardData:
    """Simulate a smooth curve with a gap in the inputs."""
    rng = np.random.default_rng(250)
    x = np.concatenate([rng.uniform(-2, -0.2, 30), rng.uniform(0.8, 2, 20)])
    grid = np.linspace(-2.6, 2.6, 53)
    y, y_grid = (np.sin(3 * z) + 0.5 * z + 0.2 * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(3 x) + x / 2 + N(0, 0.2²), 30 inputs uniform on [-2, -0.2] and 20 on [0.8, 2]."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return the model with normal frequencies and uniform phases, drawn once."""
    rng = np.random.default_rng(251)
    frequencies, phases = rng.normal(size=FEATURES) / LENGTH_SCALE, rng.uniform(0, 2 * np.pi, FEATURES)
    return RandomFeatures(torch.as_tensor(frequencies), torch.as_tensor(phases))


CARD = Card(
    name="random-features",
    title="Sixty random Fourier features, unknown amplitude and noise",
    description=(
        "Fifty observations of a smooth curve, and a linear model in sixty cosines of fixed random frequencies: a "
        "Gaussian process with a squared exponential kernel of length scale 0.6, approximately. Given the amplitude "
        "and the noise, both unknown, the posterior of the weights is normal."
    ),
    references=("A. Rahimi, B. Recht (2007), Random features for large-scale kernel machines.",),
    prior=PriorChoice(
        scale="N(0, amplitude²) for weights, HalfNormal(1.5) for the amplitude, HalfNormal(0.5) for the noise",
        why="Half a central 68% width of functions is about 1, nearly twice the standard deviation of the responses.",
        spread=1.0,
    ),
    model=make_model,
    source=make_data,
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "nuts": NUTS(num_warmup=1000, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=4000),
        "full-rank-vi": FullRankVI(num_steps=6000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000),
)
