"""Deep evidential regression."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import FGSM, DeepEnsemble
from bnnzoo.zoo.budgets import point_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate a sine whose noise grows."""
    rng = np.random.default_rng(122)
    x, grid = rng.uniform(-3, 3, 200), np.linspace(-5, 5, 61)
    y, y_grid = (np.sin(z) + (0.05 + 0.05 * (z + 3).clip(0)) * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(x) + N(0, s²) with s from 0.05 at x = -3 to 0.35 at x = 3; predictions from -5 to 5."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return 20 tanh units with the four parameters of a normal-inverse-gamma distribution as outputs."""
    net = models.mlp(1, (20,), 4)
    return models.supervised(net, models.priors.fan_in(2.0), models.normal_inverse_gamma_evidence(0.01))


CARD = Card(
    name="evidential-regression",
    title="Deep evidential regression",
    description=(
        "A network with four outputs, the parameters of a normal-inverse-gamma distribution of the mean and variance "
        "of y. One optimised network reports both kinds of uncertainty; what it reports beyond the data is "
        "extrapolation, not knowledge. The regularised loss is no log density, so only methods that maximise apply."
    ),
    references=(
        "A. Amini et al. (2020), Deep evidential regression, NeurIPS.",
        (
            "N. Meinert, J. Gawlikowski, A. Lavin (2023), The unreasonable effectiveness of deep evidential "
            "regression, AAAI."
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why="E[y | x] has a prior standard deviation of about 1.9; here the prior acts as weight decay.",
        spread=1.9,
    ),
    model=make_model,
    source=make_data,
    methods=point_methods() | {"adversarial": DeepEnsemble(5, num_steps=2000, adversarial=FGSM(0.02))},
)
