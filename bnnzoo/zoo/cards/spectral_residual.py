"""A distance-preserving residual network for densities of features."""

import numpy as np

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAP, DeepEnsemble, LastLayerLaplace
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data() -> CardData:
    """Return 400 observations of two moons, and a grid around them."""
    train = datasets.moons(400, noise=0.1, seed=121)
    side = np.linspace(-2.5, 3.5, 12)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    return CardData(
        {"x": train.x, "y": train.y}, {"x": grid}, "Two moons with noise of sd 0.1; predictions on a grid around them."
    )


def make_model() -> Model:
    """Return three residual blocks with bounded spectral norms."""
    net = models.residual_mlp(2, width=24, num_blocks=3, out_features=2, bound=0.9)
    return models.supervised(net, models.priors.fan_in(2.0), models.likelihoods.categorical())


CARD = Card(
    name="spectral-residual",
    title="Spectral residual network, for densities of features",
    description=(
        "Residual blocks whose weights have a spectral norm of at most 0.9 keep distances, so that inputs far from the "
        "data have features far from those of the data. A Gaussian density of the features for each class "
        "(ood.GaussianDensity on predictive.features of the head) then finds them, which the class probabilities of a "
        "single network do not."
    ),
    references=(
        "J. Mukhoti et al. (2023), Deep deterministic uncertainty: a new simple baseline, CVPR.",
        (
            "J. Liu et al. (2020), Simple and principled uncertainty estimation with deterministic deep learning via "
            "distance awareness."
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why="The larger of both probabilities is about 0.9 on average, since three residual blocks add up.",
        spread=0.92,
    ),
    model=make_model,
    source=make_data,
    methods={
        "map": MAP(num_members=1, num_steps=1500, polish_steps=0),
        "ensemble": DeepEnsemble(5, num_steps=1000),
        "last-layer": LastLayerLaplace(map=MAP(num_steps=1500)),
    },
)
