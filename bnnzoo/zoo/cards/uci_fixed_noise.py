"""Yacht hydrodynamics under one hidden layer with noise of fixed size."""

import math
from pathlib import Path

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.datasets import uci_split
from bnnzoo.inference import MAMS, MAP, DeepEnsemble, Laplace, MCDropout, MeanFieldVI
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "FIRST_PAPER", "PRIOR", "make_data", "network_model"]

NOISE = 0.1

PRIOR = PriorChoice(
    scale="N(0, 2 / fan-in) for weights, N(0, 1) for biases",
    why="E[y | x] has a prior standard deviation of about 1.4, a little more than that of the standardised target.",
    spread=1.4,
)
FIRST_PAPER = (
    "J. M. Hernández-Lobato, R. Adams (2015), Probabilistic backpropagation for scalable learning of Bayesian neural "
    "networks."
)


def make_data(path: Path) -> CardData:
    """Read split 0 of a table in the layout of the UCI benchmark, standardised by its training part."""
    split = uci_split(path, 0).standardized()
    recipe = f"The table {path.name} of the UCI benchmark, split 0, standardised by its training part."
    return CardData(
        {"x": split.x_train, "y": split.y_train},
        {"x": split.x_test, "y": split.y_test},
        recipe,
        y_scale=split.y_scale,
    )


def network_model(likelihood: Likelihood, num_outputs: int = 1) -> Model:
    """Return 50 tanh units under ``PRIOR`` with a likelihood."""
    net = models.mlp(6, (50,), num_outputs)
    return models.supervised(net, models.priors.fan_in(math.sqrt(2.0)), likelihood)


def make_model() -> Model:
    """Return the network with noise of a tenth of the target's standard deviation."""
    return network_model(models.likelihoods.gaussian(scale=NOISE))


CARD = Card(
    name="uci-fixed-noise",
    title="Yacht hydrodynamics, one hidden layer, fixed noise",
    description=(
        "Resistance of 308 yachts from six measurements of their hulls, in the benchmark's split 0. The noise is fixed "
        "at a tenth of the target's standard deviation: compare with uci-inferred-noise. Published mean log densities "
        "on this table are -1.55 (dropout, 2016) and -1.18 (deep ensembles, 2017), in original units."
    ),
    references=(FIRST_PAPER,),
    prior=PRIOR,
    model=make_model,
    source=make_data,
    needs="uci/yacht",
    methods={
        "mams": MAMS(num_warmup=500, num_draws=1000),
        "laplace": Laplace(map=MAP(num_members=2, num_steps=3000)),
        "mfvi": MeanFieldVI(num_steps=6000),
        "ensemble": DeepEnsemble(5, num_steps=3000),
        "dropout": MCDropout(rate=0.05, num_steps=4000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
