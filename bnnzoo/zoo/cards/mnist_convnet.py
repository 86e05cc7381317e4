"""MNIST under a small convolutional network."""

from pathlib import Path

import numpy as np
import torch

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAP, SWAG, DeepEnsemble, LastLayerLaplace, MeanFieldVI, MultiSWAG
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data(path: Path) -> CardData:
    """Read images and labels from a file with the arrays ``images`` [N, 28, 28] and ``labels`` [N]."""
    with np.load(path) as arrays:
        x = arrays["images"][:, None].astype(np.float32) / 255
        y = arrays["labels"].astype(np.int64)
    recipe = "The first 4,000 images of the file for training, the next 1,000 for predictions."
    return CardData({"x": x[:4000], "y": y[:4000]}, {"x": x[4000:5000], "y": y[4000:5000]}, recipe)


def make_model() -> Model:
    """Return two blocks of convolutions, a hidden layer and ten logits."""
    net = models.convnet((1, 28, 28), 10, channels=(8, 16), hidden=(32,))
    return models.supervised(net, models.priors.fan_in(1.5, 0.3), models.likelihoods.categorical())


CARD = Card(
    name="mnist-convnet",
    title="MNIST, convolutional network",
    description=(
        "Four thousand images of handwritten digits, two convolutions with averages, a hidden layer, 26,698 "
        "parameters. There is no BatchNorm: it would make the likelihood of an image depend on the others in its "
        "batch."
    ),
    references=(
        "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), Gradient-based learning applied to document recognition.",
    ),
    prior=PriorChoice(
        scale="N(0, 1.5² / fan-in) for weights, N(0, 0.3²) for biases",
        why=(
            "The largest of ten probabilities is below 0.3 on average: the network has no opinion about images it has "
            "not seen."
        ),
        spread=0.27,
    ),
    model=make_model,
    source=make_data,
    needs="images/mnist_5000.npz",
    dtype=torch.float32,
    methods={
        "ensemble": DeepEnsemble(3, num_steps=600, batch_size=100, learning_rate=0.003),
        "last-layer": LastLayerLaplace(map=MAP(num_steps=600, batch_size=100, learning_rate=0.003, polish_steps=0)),
        "multiswag": MultiSWAG(
            2,
            SWAG(
                num_steps=400,
                batch_size=100,
                learning_rate=1e-5,
                every=20,
                init=MAP(num_steps=600, batch_size=100, learning_rate=0.003, polish_steps=0),
            ),
        ),
        "mfvi": MeanFieldVI(num_steps=2000, num_particles=2, batch_size=100, learning_rate=0.003),
    },
)
