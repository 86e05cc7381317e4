"""A residual convolutional network with filter-response normalisation."""

import torch
from torch import Tensor, nn

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAP, SGHMC, DeepEnsemble, LastLayerLaplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "FilterResponse", "ResidualNetwork"]


class FilterResponse(nn.Module):
    """Filter-response normalisation of images [B, C, H, W] with a thresholded linear unit; it couples no observations."""

    def __init__(self, channels: int, epsilon: float = 1e-3) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gain, self.shift, self.threshold = (nn.Parameter(torch.zeros(channels)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each channel of each image by its mean square."""
        size = torch.rsqrt(x.square().mean((-2, -1), keepdim=True) + self.epsilon)
        gain, shift, threshold = (each[:, None, None] for each in (self.gain, self.shift, self.threshold))
        return torch.maximum((1 + gain) * x * size + shift, threshold)


class ResidualNetwork(nn.Module):
    """Residual network of images [B, 1, 8, 8]: a convolution, two blocks and a linear layer on the average of each channel."""

    def __init__(self, channels: int = 12, classes: int = 10) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(FilterResponse(channels), nn.Conv2d(channels, channels, 3, padding=1)) for _ in range(2)
        )
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 1, 8, 8] to logits [B, classes]."""
        features = self.first(x)
        for block in self.blocks:
            features = features + block(features)
        pooled = nn.functional.avg_pool2d(features, 4).flatten(-3)
        output: Tensor = self.head(pooled)
        return output


def make_data() -> CardData:
    """Split scikit-learn's digits as images."""
    split = datasets.digits().split(test_size=0.3, seed=0)
    return CardData(
        {"x": split.x_train.reshape(-1, 1, 8, 8) / 8 - 1, "y": split.y_train},
        {"x": split.x_test.reshape(-1, 1, 8, 8) / 8 - 1, "y": split.y_test},
        "scikit-learn's digits as images of 8 x 8 pixels; 30% are for predictions.",
    )


def make_model() -> Model:
    """Return a residual network without BatchNorm."""
    return models.supervised(ResidualNetwork(), models.priors.fan_in(1.0, 0.3), models.likelihoods.categorical())


CARD = Card(
    name="residual-filter-response",
    title="Residual network with filter-response normalisation, digits",
    description=(
        "Two residual blocks of convolutions with filter-response normalisation, which divides each channel of each "
        "image by its own mean square. BatchNorm would couple the images of a batch, and then there is no likelihood "
        "of a single image; this is the normalisation with which posteriors of deep networks were sampled exactly."
    ),
    references=(
        "S. Singh, S. Krishnan (2020), Filter response normalization layer: eliminating batch dependence.",
        (
            "P. Izmailov, S. Vikram, M. Hoffman, A. G. Wilson (2021), What are Bayesian neural network posteriors "
            "really like?"
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 1 / fan-in) for weights, N(0, 0.3²) for biases and for normalisation",
        why="The largest of ten probabilities is about 0.33 on average: a draw from the prior rarely decides.",
        spread=0.33,
    ),
    model=make_model,
    source=make_data,
    dtype=torch.float32,
    methods={
        "ensemble": DeepEnsemble(3, num_steps=400, batch_size=128),
        "last-layer": LastLayerLaplace(map=MAP(num_steps=400, batch_size=128, polish_steps=0)),
        "sghmc": SGHMC(num_chains=2, num_warmup=100, num_draws=100, batch_size=128, optimise_steps=400),
        "mfvi": MeanFieldVI(num_steps=1500, num_particles=2, batch_size=128, learning_rate=0.01),
    },
)
