"""Linear regression, whose posterior is known in closed form."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, NUTS, FullRankVI, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD", "NOISE"]

NOISE = 0.5


def make_data() -> CardData:
    """Simulate three correlated inputs and a linear response."""
    rng = np.random.default_rng(101)
    x = rng.normal(size=(90, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 1.0]])
    y = x @ np.array([1.0, -0.5, 0.0]) + 0.3 + NOISE * rng.normal(size=90)
    recipe = "y = 0.3 + x1 - 0.5 x2 + N(0, 0.5²), with standard normal inputs; x1 and x2 correlate by 0.8."
    return split_data(x, y, 50, recipe)


def make_model() -> Model:
    """Return a linear model with noise of known size."""
    return models.supervised(
        models.mlp(3, hidden=()), models.priors.normal(1.0), models.likelihoods.gaussian(scale=NOISE)
    )


CARD = Card(
    name="linear-regression",
    title="Linear regression with a known noise",
    description=(
        "Fifty observations, three inputs of which two are correlated, four coefficients. Prior and likelihood are "
        "normal and the noise is known, so the posterior is normal with a known mean and covariance: every method can "
        "be checked against the exact answer, not against another sampler."
    ),
    references=("C. Bishop (2006), Pattern recognition and machine learning, section 3.3.",),
    prior=PriorChoice(
        scale="N(0, 1) for every coefficient",
        why=(
            "E[y | x] has a prior standard deviation of about two at a typical row, more than twice that of the "
            "responses."
        ),
        spread=2.0,
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
