"""A probability that is a smooth function of one input."""

import math
from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.cards.hilbert_gaussian_process import HilbertBasis
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD", "ProcessClassifier"]


@dataclass(frozen=True, eq=False)
class ProcessClassifier:
    """The model ``model(x, y=None)``: a process with a Matérn covariance (3/2) as logit of a probability."""

    basis: HilbertBasis

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the level, the amplitude, the length scale and the coefficients, and observe classes ``y[N]``."""
        level = pyro.sample("level", dist.Normal(0.0, 1.0))
        amplitude = pyro.sample("amplitude", dist.HalfNormal(2.0))
        rate = math.sqrt(3) / pyro.sample("length", dist.LogNormal(0.0, 0.5))
        unit = pyro.sample("unit", dist.Normal(0.0, 1.0).expand([self.basis.size]).to_event(1))
        root_density = 2 * rate**1.5 / (rate**2 + self.basis.frequencies(x) ** 2)
        with pyro.plate("data", len(x)):
            logits = level + amplitude * self.basis(x) @ (root_density * unit)
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def make_data() -> CardData:
    """Simulate classes whose probability goes up and down."""
    rng = np.random.default_rng(207)
    x, grid = rng.uniform(-2, 2, 120), np.linspace(-2.8, 2.8, 41)
    y, y_grid = ((rng.uniform(size=z.size) < 1 / (1 + np.exp(-2.5 * np.sin(2 * z)))).astype(float) for z in (x, grid))
    recipe = "P(y = 1) = logistic(2.5 sin(2 x)) with x uniform on [-2, 2]; predictions from -2.8 to 2.8."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return 30 functions on [-4.2, 4.2]."""
    return ProcessClassifier(HilbertBasis(30, 4.2))


CARD = Card(
    name="gaussian-process-classifier",
    title="Gaussian process classifier in one dimension",
    description=(
        "One hundred and twenty observations of two classes. The logit is a level plus a Gaussian process with a "
        "Matérn covariance, in the Hilbert-space basis of hilbert-gaussian-process. Classes say little about how large "
        "logits are, so that the amplitude has a wide and skewed posterior, which predictions share."
    ),
    references=(
        "C. Rasmussen, C. Williams (2006), Gaussian processes for machine learning, chapter 3.",
        "A. Solin, S. Särkkä (2020), Hilbert space methods for reduced-rank Gaussian process regression.",
    ),
    prior=PriorChoice(
        scale="N(0, 1) for the level, HalfNormal(2) for the amplitude, LogNormal(0, 0.5²) for the length scale",
        why="The larger of both probabilities is 0.76 on average: functions that decide, and functions that do not.",
        spread=0.76,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000, target_accept=0.9),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=1500, target_accept=0.9),
)
