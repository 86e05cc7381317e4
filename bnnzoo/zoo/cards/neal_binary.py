"""Neal's binary problem in the plane, simulated by the same kind of recipe."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, DeepEnsemble, MeanFieldVI
from bnnzoo.models.priors import gamma_precision, layerwise
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]

HIDDEN = 8


def make_data() -> CardData:
    """Simulate a class whose probability is high within a disc."""
    rng = np.random.default_rng(107)
    x = rng.normal(size=(260, 2))
    probability = np.exp(-(((x[:, 0] - 0.4) ** 2 + (x[:, 1] + 0.3) ** 2) ** 2))
    y = (rng.uniform(size=260) < probability).astype(np.int64)
    recipe = "P(y = 1) = exp(-r⁴), where r is the distance from (0.4, -0.3), with standard normal inputs."
    return split_data(x, y, 200, recipe)


def make_model() -> Model:
    """Return eight tanh units whose groups of weights have half-normal scales."""
    prior = layerwise(gamma_precision(1.0, 1.0))
    return models.supervised(models.mlp(2, (HIDDEN,)), prior, models.likelihoods.bernoulli())


CARD = Card(
    name="neal-binary",
    title="A disc in the plane: binary classes with hierarchical priors",
    description=(
        "Two hundred observations whose class is likely to be 1 within a disc, and a network of eight tanh units with "
        "an unknown scale for each group of weights, after the binary example of Neal's software. The border is soft: "
        "even the true probabilities leave an entropy."
    ),
    references=(
        "R. Neal (1996), Bayesian learning for neural networks; and its software's documentation, Ex-netgp-b.",
    ),
    prior=PriorChoice(
        scale="N(0, 1 / τ) for each group of weights, τ ~ Gamma(1, 1)",
        why=(
            "The larger of both probabilities is 0.85 on average: neither certain nor undecided functions are ruled "
            "out."
        ),
        spread=0.85,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=1000, num_draws=1000, target_accept=0.9),
        "mams": MAMS(num_warmup=1000, num_draws=2000, target_accept=0.9),
        "mfvi": MeanFieldVI(num_steps=4000),
        "ensemble": DeepEnsemble(10, num_steps=2000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000, target_accept=0.9),
)
