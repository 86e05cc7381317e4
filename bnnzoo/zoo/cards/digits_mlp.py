"""Handwritten digits of 8 x 8 pixels under a multilayer perceptron."""

import torch

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAP, DeepEnsemble, KFACLaplace, LastLayerLaplace, MCDropout, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "make_data"]


def make_data() -> CardData:
    """Split scikit-learn's digits, with pixels from -1 to 1."""
    split = datasets.digits().split(test_size=0.3, seed=0)
    return CardData(
        {"x": split.x_train / 8 - 1, "y": split.y_train},
        {"x": split.x_test / 8 - 1, "y": split.y_test},
        "scikit-learn's digits: 1,797 images of 8 x 8 pixels; 30% are for predictions.",
    )


def make_model() -> Model:
    """Return 32 ReLU units and ten logits."""
    net = models.mlp(64, (32,), 10, activation="relu")
    return models.supervised(net, models.priors.fan_in(1.5, 0.5), models.likelihoods.categorical())


CARD = Card(
    name="digits-mlp",
    title="Handwritten digits of 8 x 8 pixels, one hidden layer",
    description=(
        "Ten classes from 64 pixels, 2,410 parameters. Small enough to fit in seconds, and with enough ambiguous "
        "digits for calibration to matter."
    ),
    references=("E. Alpaydin, C. Kaynak (1998), Cascading classifiers.",),
    prior=PriorChoice(
        scale="N(0, 1.5² / fan-in) for weights, N(0, 0.5²) for biases",
        why=(
            "The largest of ten probabilities is about 0.43 on average: a draw from the prior leans to a class, "
            "and rarely decides."
        ),
        spread=0.43,
    ),
    model=make_model,
    source=make_data,
    dtype=torch.float32,
    methods={
        "last-layer": LastLayerLaplace(map=MAP(num_steps=600, polish_steps=200)),
        "kfac": KFACLaplace(map=MAP(num_steps=600, polish_steps=200)),
        "mfvi": MeanFieldVI(num_steps=1500, num_particles=2),
        "ensemble": DeepEnsemble(5, num_steps=600),
        "dropout": MCDropout(rate=0.1, num_steps=1500, num_particles=2),
    },
)
