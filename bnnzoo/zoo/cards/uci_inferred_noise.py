"""Yacht hydrodynamics under one hidden layer with noise of unknown size."""

import math

import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, DeepEnsemble, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.cards.uci_fixed_noise import HIDDEN, make_data

__all__ = ["CARD"]


def make_model() -> Model:
    """Return 50 tanh units with a half-normal prior on the noise."""
    likelihood = models.likelihoods.gaussian(dist.HalfNormal(0.5))
    return models.supervised(models.mlp(6, (HIDDEN,)), models.priors.fan_in(math.sqrt(2.0)), likelihood)


CARD = Card(
    name="uci-inferred-noise",
    title="Yacht hydrodynamics, one hidden layer, inferred noise",
    description=(
        "The table of uci-fixed-noise, with the standard deviation of the noise as one more unknown: the log density "
        "of a regression depends on it as much as on the function."
    ),
    references=(
        (
            "J. M. Hernández-Lobato, R. Adams (2015), Probabilistic backpropagation for scalable learning of Bayesian "
            "neural networks."
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 2 / fan-in) for weights, N(0, 1) for biases; HalfNormal(0.5) for the noise",
        why="E[y | x] has a prior standard deviation of about 1.4, a little more than that of the standardised target.",
        spread=1.4,
    ),
    model=make_model,
    source=make_data,
    needs="uci/yacht",
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=1000),
        "laplace": Laplace(map=MAP(num_members=2, num_steps=3000)),
        "mfvi": MeanFieldVI(num_steps=6000),
        "ensemble": DeepEnsemble(5, num_steps=3000),
    },
)
