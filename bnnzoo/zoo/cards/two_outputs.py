"""Two outcomes from one network, with correlated errors."""

import numpy as np
import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, DeepEnsemble, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]

COVARIANCE = 0.3**2 * np.array([[1.0, 0.8], [0.8, 1.0]])


def make_data() -> CardData:
    """Simulate two curves of one input with correlated errors."""
    rng = np.random.default_rng(262)
    x, grid = rng.uniform(-2, 2, 80), np.linspace(-2.5, 2.5, 31)

    def observe(z: np.ndarray) -> np.ndarray:
        means = np.column_stack([np.sin(2 * z), np.cos(1.5 * z) - 0.3 * z])
        return means + rng.multivariate_normal(np.zeros(2), COVARIANCE, size=z.size)

    recipe = "y1 = sin(2 x), y2 = cos(1.5 x) - 0.3 x, with normal errors of sd 0.3 and correlation 0.8; x uniform on [-2, 2]."
    return line_data(x, observe(x), grid, observe(grid), recipe)


def make_model() -> Model:
    """Return eight tanh units with two outputs and a correlation of unknown size."""
    likelihood = models.likelihoods.multivariate_gaussian(dist.HalfNormal(0.5))
    return models.supervised(models.mlp(1, (8,), 2), models.priors.fan_in(2.0), likelihood)


CARD = Card(
    name="two-outputs",
    title="Two outcomes with correlated errors",
    description=(
        "Eighty observations of two outcomes, whose means are outputs of the same eight units and whose errors have unknown "
        "scales and an unknown correlation. What one outcome says about the other goes through the shared units and "
        "through the errors."
    ),
    references=(
        "A. Zellner (1962), An efficient method of estimating seemingly unrelated regressions and tests for "
        "aggregation bias.",
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases; HalfNormal(0.5) for the scales, LKJ(1) for the correlation",
        why="Both means have a prior standard deviation of about 1.85, more than twice that of the responses.",
        spread=1.85,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=1000, num_draws=1000),
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=4000),
        "ensemble": DeepEnsemble(10, num_steps=2000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=3000),
)
