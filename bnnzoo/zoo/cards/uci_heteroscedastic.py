"""Yacht hydrodynamics under one hidden layer with noise that depends on the inputs."""

from dataclasses import replace

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, DeepEnsemble, MeanFieldVI
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.cards.uci_fixed_noise import PRIOR, make_data, network_model

__all__ = ["CARD"]


def make_model() -> Model:
    """Return the network of uci-fixed-noise with a mean and a scale as outputs."""
    return network_model(models.likelihoods.heteroscedastic_gaussian(min_scale=1e-3), num_outputs=2)


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
    prior=replace(
        PRIOR,
        why=(
            "E[y | x] has a prior standard deviation of about 1.4; noise between 0.1 and 2 standard deviations is "
            "plausible."
        ),
    ),
    model=make_model,
    source=make_data,
    needs="uci/yacht",
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=1000),
        "mfvi": MeanFieldVI(num_steps=6000),
        "ensemble": DeepEnsemble(5, num_steps=3000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
