"""A Gaussian process on an interval as a sum of sines."""

import math
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

__all__ = ["CARD", "HilbertBasis", "HilbertProcess"]

NOISE = 0.3


@dataclass(frozen=True, eq=False)
class HilbertBasis:
    """Eigenfunctions of the Laplacian on ``[-boundary, boundary]`` that vanish at its ends."""

    size: int
    boundary: float

    def frequencies(self, like: Tensor) -> Tensor:
        """Return the square roots ``[size]`` of the eigenvalues."""
        order = torch.arange(1, self.size + 1, dtype=like.dtype, device=like.device)
        return math.pi / (2 * self.boundary) * order

    def __call__(self, x: Tensor) -> Tensor:
        """Return the functions at ``x[N, 1]``, ``[N, size]``."""
        return (self.frequencies(x) * (x + self.boundary)).sin() / math.sqrt(self.boundary)


@dataclass(frozen=True, eq=False)
class HilbertProcess:
    """The model ``model(x, y=None)``: a process with a squared exponential covariance, and normal noise."""

    basis: HilbertBasis

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the amplitude, the length scale, the coefficients and the noise, and observe ``y[N]``."""
        amplitude = pyro.sample("amplitude", dist.HalfNormal(1.0))
        length = pyro.sample("length", dist.LogNormal(0.0, 0.5))
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        unit = pyro.sample("unit", dist.Normal(0.0, 1.0).expand([self.basis.size]).to_event(1))
        root_density = (-((length * self.basis.frequencies(x)) ** 2) / 4).exp() * (
            math.sqrt(2 * math.pi) * length
        ) ** 0.5
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(amplitude * self.basis(x) @ (root_density * unit), noise), obs=y)


def make_data() -> CardData:
    """Simulate a smooth function on [-2, 2]."""
    rng = np.random.default_rng(206)
    x, grid = rng.uniform(-2, 2, 60), np.linspace(-3, 3, 41)
    y, y_grid = (np.sin(2.5 * z) + 0.4 * z + NOISE * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(2.5 x) + 0.4 x + N(0, 0.3²) with x uniform on [-2, 2]; predictions from -3 to 3."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return 24 functions on [-4.5, 4.5]."""
    return HilbertProcess(HilbertBasis(24, 4.5))


CARD = Card(
    name="hilbert-gaussian-process",
    title="Gaussian process by Hilbert-space basis functions",
    description=(
        "Sixty observations of a smooth function. A Gaussian process with a squared exponential covariance on an "
        "interval half as wide again as that of the predictions is a sum of 24 sines, whose prior variances are the "
        "spectral density at their frequencies. Amplitude and length scale are unknown; predictions beyond the data "
        "return to the prior."
    ),
    references=(
        (
            "G. Riutort-Mayol, P.-C. Bürkner, M. Andersen, A. Solin, A. Vehtari (2023), Practical Hilbert space "
            "approximate Bayesian Gaussian processes for probabilistic programming."
        ),
        "A. Solin, S. Särkkä (2020), Hilbert space methods for reduced-rank Gaussian process regression.",
    ),
    prior=PriorChoice(
        scale="HalfNormal(1) for the amplitude, LogNormal(0, 0.5²) for the length scale, HalfNormal(0.5) for the noise",
        why="E[y | x] has a central 68% of half a width of 0.64, and functions turn a few times between -2 and 2.",
        spread=0.64,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000, target_accept=0.95),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000, target_accept=0.95),
)
