"""Yacht hydrodynamics under one hidden layer with noise of unknown size."""

from dataclasses import replace

import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, DeepEnsemble, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.cards.uci_fixed_noise import FIRST_PAPER, PRIOR, make_data, network_model

__all__ = ["CARD"]


def make_model() -> Model:
    """Return the network of uci-fixed-noise with a half-normal prior on the noise."""
    return network_model(models.likelihoods.gaussian(dist.HalfNormal(0.5)))


CARD = Card(
    name="uci-inferred-noise",
    title="Yacht hydrodynamics, one hidden layer, inferred noise",
    description=(
        "The table of uci-fixed-noise, with the standard deviation of the noise as one more unknown: the log density "
        "of a regression depends on it as much as on the function."
    ),
    references=(FIRST_PAPER,),
    prior=replace(PRIOR, scale=f"{PRIOR.scale}; HalfNormal(0.5) for the noise"),
    model=make_model,
    source=make_data,
    needs="uci/yacht",
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=1000),
        "laplace": Laplace(map=MAP(num_members=2, num_steps=3000)),
        "mfvi": MeanFieldVI(num_steps=6000),
        "ensemble": DeepEnsemble(5, num_steps=3000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
