"""Logistic regression: the smallest model without a closed form."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, NUTS, FullRankVI, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate two inputs and a binary response."""
    rng = np.random.default_rng(102)
    x = rng.normal(size=(100, 2))
    y = (rng.uniform(size=100) < 1 / (1 + np.exp(-(0.5 + 2 * x[:, 0] - x[:, 1])))).astype(np.int64)
    return split_data(x, y, 60, "P(y = 1) = logistic(0.5 + 2 x1 - x2), with independent standard normal inputs.")


def make_model() -> Model:
    """Return a linear model of the logit."""
    return models.supervised(models.mlp(2, hidden=()), models.priors.normal(1.5), models.likelihoods.bernoulli())


CARD = Card(
    name="logistic-regression",
    title="Logistic regression on two inputs",
    description=(
        "Sixty observations, two inputs and an intercept. The log density is concave, with one mode and tails a little "
        "heavier on one side than those of a normal: the Laplace approximation is close, but not exact."
    ),
    references=("A. Gelman et al. (2008), A weakly informative default prior distribution for logistic regression.",),
    prior=PriorChoice(
        scale="N(0, 1.5²) for every coefficient",
        why=(
            "Probabilities are spread over the unit interval: the larger of the two is 0.8 on average. With a scale of "
            "10 nearly all prior mass would be on probabilities of 0 and 1."
        ),
        spread=0.8,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=500, num_draws=1000),
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "laplace": Laplace(map=MAP(num_steps=300)),
        "full-rank-vi": FullRankVI(num_steps=2000),
        "mfvi": MeanFieldVI(num_steps=2000),
    },
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000, mass_matrix="diagonal"),
)
