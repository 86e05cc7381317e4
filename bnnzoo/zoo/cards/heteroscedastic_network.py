"""A network with a mean and a scale as outputs."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, DeepEnsemble, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate a smooth curve whose noise grows with the input."""
    rng = np.random.default_rng(254)
    x, grid = rng.uniform(-2, 2, 120), np.linspace(-2.5, 2.5, 51)

    def observe(z: np.ndarray) -> np.ndarray:
        return np.sin(2 * z) + 0.1 * np.exp(0.6 * (z + 1)) * rng.normal(size=z.size)

    recipe = "y = sin(2 x) + N(0, s(x)²) with s(x) = 0.1 exp(0.6 (x + 1)) and x uniform on [-2, 2]."
    return line_data(x, observe(x), grid, observe(grid), recipe)


def make_model() -> Model:
    """Return eight tanh units with two outputs."""
    likelihood = models.likelihoods.heteroscedastic_gaussian(min_scale=0.02)
    return models.supervised(models.mlp(1, (8,), 2), models.priors.fan_in(2.0), likelihood)


CARD = Card(
    name="heteroscedastic-network",
    title="One network with a mean and a scale as outputs",
    description=(
        "One hundred and twenty observations whose noise grows tenfold from the left to the right. The network has two "
        "outputs on the same eight units, a mean and a scale (through softplus): where the noise is small, the mean is "
        "known well, and the scale decides what the likelihood of each observation is worth. Curvature differs so much between "
        "directions that NUTS needs trees of the largest depth."
    ),
    references=("D. Nix, A. Weigend (1994), Estimating the mean and variance of the target probability distribution.",),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "The mean has a prior standard deviation of about 1.8; scales between 0.05 and 3 are plausible at any input."
        ),
        spread=1.85,
    ),
    model=make_model,
    source=make_data,
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "laplace": Laplace(map=MAP(num_members=4, num_steps=3000)),
        "mfvi": MeanFieldVI(num_steps=4000),
        "ensemble": DeepEnsemble(10, num_steps=2000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
