"""Yacht hydrodynamics under one hidden layer with noise that depends on the inputs."""

import math

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, DeepEnsemble, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.cards.uci_fixed_noise import HIDDEN, make_data

__all__ = ["CARD"]


def make_model() -> Model:
    """Return 50 tanh units with a mean and a scale as outputs."""
    likelihood = models.likelihoods.heteroscedastic_gaussian(min_scale=1e-3)
    return models.supervised(models.mlp(6, (HIDDEN,), 2), models.priors.fan_in(math.sqrt(2.0)), likelihood)


CARD = Card(
    name="uci-heteroscedastic",
    title="Yacht hydrodynamics, one hidden layer, noise that depends on the inputs",
    description=(
        "The table of uci-fixed-noise, with a network that has a mean and a scale as outputs, because resistance grows "
        "steeply with speed: one common scale is too wide for slow yachts, or too narrow for fast ones."
    ),
    references=(
        "B. Lakshminarayanan, A. Pritzel, C. Blundell (2017), Simple and scalable predictive uncertainty estimation.",
    ),
    prior=PriorChoice(
        scale="N(0, 2 / fan-in) for weights, N(0, 1) for biases",
        why=(
            "E[y | x] has a prior standard deviation of about 1.4; noise between 0.1 and 2 standard deviations is "
            "plausible."
        ),
        spread=1.4,
    ),
    model=make_model,
    source=make_data,
    needs="uci/yacht",
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=1000),
        "mfvi": MeanFieldVI(num_steps=6000),
        "ensemble": DeepEnsemble(5, num_steps=3000),
    },
)
