"""Neal's one-dimensional network regression with hierarchical priors."""

import math
from pathlib import Path

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, DeepEnsemble, MeanFieldVI
from bnnzoo.models.priors import Prior, by_parameter, gamma_precision, layerwise, normal
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD", "hierarchical_prior"]

HIDDEN = 8


def hierarchical_prior(width: float = 0.05, output_bias: float = 100.0, hidden: int = HIDDEN) -> Prior:
    """Return Neal's prior for one hidden layer: a vague gamma prior on the precision of each group of weights.

    Parameters
    ----------
    width : float
        Centre of the prior of each scale.
    output_bias : float
        Standard deviation of the output's bias.
    hidden : int
        Number of units, by whose square root the scale of the output weights is divided.

    Examples
    --------
    >>> type(hierarchical_prior()).__name__
    'ByParameter'
    """
    group = layerwise(gamma_precision(0.25, width))
    output = layerwise(gamma_precision(0.25, width / math.sqrt(hidden)))
    return by_parameter({"0.*": group, "2.weight": output, "2.bias": normal(output_bias)})


def make_data(path: Path) -> CardData:
    """Read the first 100 rows for training and the next 100 for predictions."""
    table = np.loadtxt(path)
    train, test = table[:100], table[100:200]
    recipe = "Rows 1 to 100 of Neal's file rdata; rows 101 to 200 are for predictions."
    return line_data(train[:, 0], train[:, 1], test[:, 0], test[:, 1], recipe)


def make_model() -> Model:
    """Return eight tanh units with hierarchical priors on weights and noise."""
    noise = models.likelihoods.gaussian(gamma_precision(0.25, 0.05))
    return models.supervised(models.mlp(1, (HIDDEN,)), hierarchical_prior(), noise)


CARD = Card(
    name="neal-regression",
    title="Neal's network regression with hierarchical priors",
    description=(
        "The first example of Neal's software for flexible Bayesian modelling: one input, eight tanh units, and a "
        "precision for each group of weights with a vague gamma prior. Documented over both modes of the posterior: "
        "mean test log density 0.830 ± 0.022, mean squared test error 0.0187 ± 0.0034, predictive mean -2.10, 1.38 and "
        "2.96 at x = -3, 0 and 3. A chain stays in one of two modes for a long time, and honest diagnostics of "
        "several chains say so."
    ),
    references=(
        "R. Neal (1996), Bayesian learning for neural networks; and its software's documentation, Ex-netgp-r.",
    ),
    prior=PriorChoice(
        scale=(
            "N(0, 1 / τ) for each group of weights, τ ~ Gamma with shape 0.25 and mean 1 / 0.05²; N(0, 100²) for the "
            "output's bias"
        ),
        why=(
            "Scales from thousandths to hundreds are all plausible: the data choose how curved the function is. At a "
            "row, the prior of E[y | x] is that of the output's bias, with a standard deviation of about 100."
        ),
        spread=100.0,
    ),
    model=make_model,
    source=make_data,
    needs="fbm/rdata",
    methods={
        "nuts": NUTS(num_warmup=1000, num_draws=1000, target_accept=0.95),
        "mams": MAMS(num_warmup=1000, num_draws=4000, target_accept=0.9),
        "mfvi": MeanFieldVI(num_steps=6000),
        "ensemble": DeepEnsemble(10, num_steps=3000),
    },
)
