"""A hierarchical prior: the scales of the weights are learnt, layer by layer."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, FullRankVI, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD", "LearntScales", "ScaledNetwork"]


class ScaledNetwork(nn.Module):
    """Tanh units [N, units] and an output [N]; the weights of both layers are multiplied by scales."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, units), nn.Linear(units, 1)

    def forward(self, x: Tensor, first_scale: Tensor, second_scale: Tensor) -> Tensor:
        """Map x [N, 1] to [N]."""
        hidden = torch.tanh(first_scale * self.first(x))
        output: Tensor = second_scale * len(self.first.bias) ** -0.5 * (hidden @ self.second.weight[0])
        return output + self.second.bias


@dataclass(frozen=True, eq=False)
class LearntScales:
    """The model ``model(x, y=None)``: standard normal weights (non-centred), and a scale for each layer."""

    net: nn.Module

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the scales, the weights and the noise, and observe ``y[N]``."""
        scales = [pyro.sample(f"{name}_scale", dist.HalfNormal(3.0)) for name in ("first", "second")]
        curve = models.random_module("net", self.net, models.priors.normal(1.0))(x, *scales)
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(curve, noise), obs=y)


def make_data() -> CardData:
    """Simulate a smooth curve."""
    rng = np.random.default_rng(255)
    x, grid = rng.uniform(-2, 2, 80), np.linspace(-2.6, 2.6, 53)
    y, y_grid = (np.sin(2 * z) * np.exp(-0.2 * z) + 0.25 * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(2 x) exp(-0.2 x) + N(0, 0.25²) with x uniform on [-2, 2]; predictions from -2.6 to 2.6."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return eight tanh units."""
    return LearntScales(ScaledNetwork(8))


CARD = Card(
    name="learnt-prior-scales",
    title="A hierarchical prior, one unknown scale for each layer",
    description=(
        "Eighty observations of a smooth curve. Neither the scale of the first layer, which says how wiggly functions "
        "are, nor that of the second, which says how large, is fixed; both have half-normal priors. Weights are standard "
        "normal and multiplied by the scales, so that small scales make no funnel; products of scales and weights that the data "
        "know leave curved ridges instead."
    ),
    references=(
        "R. Neal (1996), Bayesian learning for neural networks, section 3.2.",
        "M. Betancourt, M. Girolami (2015), Hamiltonian Monte Carlo for hierarchical models.",
    ),
    prior=PriorChoice(
        scale="HalfNormal(3) for the scale of each layer, N(0, 1) for weights and output bias; HalfNormal(0.5) for the noise",
        why="Functions have a prior standard deviation of about 1.9, more than twice that of the responses.",
        spread=1.9,
    ),
    model=make_model,
    source=make_data,
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=4000),
        "full-rank-vi": FullRankVI(num_steps=6000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
