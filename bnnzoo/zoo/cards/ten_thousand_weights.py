"""Ten thousand weights and forty observations."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, DeepEnsemble, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]

NOISE = 0.3


def make_data() -> CardData:
    """Simulate forty observations of a smooth surface."""
    rng = np.random.default_rng(259)
    x = rng.uniform(-2, 2, (80, 2))
    y = np.sin(1.5 * x[:, 0]) * np.cos(x[:, 1]) + 0.3 * x[:, 1] + NOISE * rng.normal(size=80)
    recipe = "y = sin(1.5 x1) cos(x2) + 0.3 x2 + N(0, 0.3²) with x uniform on [-2, 2]²."
    return split_data(x, y, 40, recipe)


def make_model() -> Model:
    """Return two layers of 98 tanh units with noise of known size."""
    net = models.mlp(2, (98, 98))
    return models.supervised(net, models.priors.fan_in(1.5), models.likelihoods.gaussian(scale=NOISE))


CARD = Card(
    name="ten-thousand-weights",
    title="Ten thousand weights and forty observations",
    description=(
        "Two hidden layers of 98 units, 10,095 parameters, and forty observations of a smooth surface: 250 weights for "
        "each observation. The posterior of the weights is close to the prior in most directions, and that of the "
        "function is not, so that a sampler can be exact in as many dimensions."
    ),
    references=(
        "P. Izmailov, S. Vikram, M. Hoffman, A. Wilson (2021), What are Bayesian neural network posteriors really like?",
    ),
    prior=PriorChoice(
        scale="N(0, 1.5² / fan-in) for weights, N(0, 1) for biases",
        why="Functions have a prior standard deviation of about 1.5, more than twice that of the responses.",
        spread=1.5,
    ),
    model=make_model,
    source=make_data,
    methods={
        "mams": MAMS(num_warmup=500, num_draws=500),
        "mfvi": MeanFieldVI(num_steps=4000),
        "ensemble": DeepEnsemble(5, num_steps=1000),
    },
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1000),
)
