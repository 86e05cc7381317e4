"""A Bayesian last layer on optimised features."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, LastLayerLaplace, LastLayerVI, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]

NOISE = 0.15


def make_data() -> CardData:
    """Simulate a sine with a gap."""
    rng = np.random.default_rng(124)
    x, grid = np.concatenate([rng.uniform(-3, -0.5, 40), rng.uniform(1.5, 3, 30)]), np.linspace(-4, 4, 57)
    y, y_grid = (np.sin(1.5 * z) + NOISE * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(1.5 x) + N(0, 0.15²) with x uniform on [-3, -0.5] and [1.5, 3]; predictions from -4 to 4."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return two layers of 20 tanh units with noise of known size."""
    likelihood = models.likelihoods.gaussian(scale=NOISE)
    return models.supervised(models.mlp(1, (20, 20)), models.priors.fan_in(2.0), likelihood)


CARD = Card(
    name="last-layer",
    title="A Bayesian last layer",
    description=(
        "Seventy observations with a gap, and a network of two hidden layers. The layers below are optimised and only "
        "the last one has a posterior, which for normal noise is normal: the cheapest way to give a network an "
        "uncertainty. Sampling all layers shows what fixed features leave out."
    ),
    references=(
        "J. Snoek et al. (2015), Scalable Bayesian optimization using deep neural networks, ICML.",
        (
            "A. Kristiadi, M. Hein, P. Hennig (2020), Being Bayesian, even just a bit, fixes overconfidence in ReLU "
            "networks, ICML."
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why="Functions have a prior standard deviation of about 1.9, a little more than the range of the sine.",
        spread=1.9,
    ),
    model=make_model,
    source=make_data,
    methods={
        "last-layer-laplace": LastLayerLaplace(map=MAP(num_members=2, num_steps=2000)),
        "last-layer-vi": LastLayerVI(MAP(num_steps=2000), MeanFieldVI(num_steps=2000)),
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=6000),
    },
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
