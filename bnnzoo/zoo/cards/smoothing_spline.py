"""A curve of cubic B-splines whose coefficients are a random walk."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD", "SmoothingSpline"]

NOISE = 0.3


@dataclass(frozen=True, eq=False)
class SmoothingSpline:
    """The model ``model(x, y=None)``: cubic B-splines on ``size - 3`` equal intervals of [0, 1], and normal noise."""

    size: int

    def basis(self, x: Tensor) -> Tensor:
        """Return the B-splines at ``x[N, 1]``, ``[N, size]``."""
        centres = torch.arange(-1, self.size - 1, dtype=x.dtype, device=x.device)
        near = ((self.size - 3) * x - centres).abs()
        return torch.where(near < 1, 4 - 6 * near**2 + 3 * near**3, (2 - near).clamp(min=0) ** 3) / 6

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the walk (non-centred), the size of its steps and the noise, and observe ``y[N]``."""
        first = pyro.sample("first", dist.Normal(0.0, 1.0))
        step = pyro.sample("step_sd", dist.HalfNormal(0.5))
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        unit = pyro.sample("unit", dist.Normal(0.0, 1.0).expand([self.size - 1]).to_event(1))
        walk = torch.cat([unit.new_zeros(1), unit.cumsum(0)])
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(first + step * self.basis(x) @ walk, noise), obs=y)


def make_data() -> CardData:
    """Simulate a curve with a steep rise."""
    rng = np.random.default_rng(208)
    x, grid = rng.beta(1.2, 1.2, 90), np.linspace(0, 1, 41)
    y, y_grid = (
        np.tanh(12 * (z - 0.4)) - 1.2 * np.maximum(z - 0.6, 0) + NOISE * rng.normal(size=z.size) for z in (x, grid)
    )
    recipe = "y = tanh(12 (x - 0.4)) - 1.2 max(x - 0.6, 0) + N(0, 0.3²) with x ~ Beta(1.2, 1.2) on [0, 1]."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return 20 B-splines."""
    return SmoothingSpline(20)


CARD = Card(
    name="smoothing-spline",
    title="Penalised B-splines with an unknown smoothness",
    description=(
        "Ninety observations of a curve that rises steeply and then falls. Twenty cubic B-splines on equal intervals, "
        "with coefficients that are a random walk: the standard deviation of its steps, which is unknown, is the "
        "inverse of the smoothness. The walk is non-centred, so that its steps are independent in the prior."
    ),
    references=(
        "S. Lang, A. Brezger (2004), Bayesian P-splines.",
        "P. Eilers, B. Marx (1996), Flexible smoothing with B-splines and penalties.",
    ),
    prior=PriorChoice(
        scale="N(0, 1) for the first coefficient, HalfNormal(0.5) for steps and for the noise",
        why="E[y | x] has a prior standard deviation of about 1.4, and the responses one of 0.9.",
        spread=1.43,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000, target_accept=0.9),
)
