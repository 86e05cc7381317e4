"""A network whose first layer has a regularised horseshoe prior, on data with few relevant inputs."""

import numpy as np
import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, DeepEnsemble, MeanFieldVI
from bnnzoo.models.priors import by_parameter, fan_in, horseshoe
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate ten inputs, two of which matter."""
    rng = np.random.default_rng(113)
    x = rng.normal(size=(160, 10))
    y = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] ** 2 - 0.5 + 0.2 * rng.normal(size=160)
    recipe = (
        "y = sin(1.5 x1) + (x2² - 1) / 2 + N(0, 0.2²), with ten standard normal inputs, eight of which do not matter."
    )
    return split_data(x, y, 120, recipe)


def make_model() -> Model:
    """Return six tanh units with a horseshoe on the weights of the first layer."""
    prior = by_parameter({"0.weight": horseshoe(0.2, slab_scale=2.0)}, default=fan_in(2.0))
    return models.supervised(models.mlp(10, (6,)), prior, models.likelihoods.gaussian(dist.HalfNormal(0.5)))


CARD = Card(
    name="horseshoe-sparse",
    title="Ten inputs, two of which matter, regularised horseshoe",
    description=(
        "One hundred and twenty observations of ten inputs of which two matter. Every weight of the first layer has a "
        "half-Cauchy scale of its own, under one global scale: most weights shrink to zero, a few stay. The geometry "
        "is hard for every sampler."
    ),
    references=(
        "S. Ghosh, J. Yao, F. Doshi-Velez (2018), Structured variational learning of Bayesian neural networks with "
        "horseshoe priors.",
        (
            "J. Piironen, A. Vehtari (2017), Sparsity information and regularization in the horseshoe and other "
            "shrinkage priors."
        ),
    ),
    prior=PriorChoice(
        scale="horseshoe with global scale 0.2 and a slab of 2 for the first layer; N(0, 2² / fan-in) for the rest",
        why=(
            "A global scale of 0.2 expects one weight in six to matter, of 60; functions have a prior standard "
            "deviation near 1.75."
        ),
        spread=1.75,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=1000, num_draws=1000, target_accept=0.95),
        "mams": MAMS(num_warmup=1000, num_draws=3000, target_accept=0.9),
        "mfvi": MeanFieldVI(num_steps=6000),
        "ensemble": DeepEnsemble(10, num_steps=3000),
    },
    long_run=MAMS(num_chains=8, num_warmup=2000, num_draws=8000, target_accept=0.9),
)
