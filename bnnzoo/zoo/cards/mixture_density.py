"""A mixture density network for an inverse problem."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, DeepEnsemble, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD", "MixtureDensity"]

COMPONENTS = 3


@dataclass(frozen=True, eq=False)
class MixtureDensity:
    """The model ``model(x, y=None)``: a mixture of normals whose weights, means and scales a network computes."""

    net: nn.Module

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the weights of the network, and observe ``y[N]``."""
        output = models.random_module("net", self.net, models.priors.fan_in(1.5))(x)
        logits, means, log_scales = output.chunk(3, dim=-1)
        parts = dist.Normal(means, (log_scales - 1.5).exp() + 0.02, validate_args=False)
        mixture = dist.MixtureSameFamily(
            dist.Categorical(logits=logits, validate_args=False), parts, validate_args=False
        )
        with pyro.plate("data", len(x)):
            pyro.sample("y", mixture, obs=y)


def make_data() -> CardData:
    """Simulate Bishop's inverse problem, in standard units."""
    rng = np.random.default_rng(125)

    def inverse(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.uniform(size=count)
        x = y + 0.3 * np.sin(2 * np.pi * y) + rng.uniform(-0.1, 0.1, count)
        return 4 * (x - 0.5), 3 * (y - 0.5)

    (x, y), (x_test, y_test) = inverse(200), inverse(60)
    order = np.argsort(x_test)
    recipe = (
        "u uniform on [0, 1], x = u + 0.3 sin(2 π u) + U(-0.1, 0.1), and u is to be predicted from x; both are "
        "standardised."
    )
    return line_data(x, y, x_test[order], y_test[order], recipe)


def make_model() -> Model:
    """Return ten tanh units with nine outputs."""
    return MixtureDensity(models.mlp(1, (10,), 3 * COMPONENTS))


CARD = Card(
    name="mixture-density",
    title="A mixture density network on an inverse problem",
    description=(
        "In the middle of the range three values of y are plausible for one x: a mean with a normal noise says nothing "
        "there. A network computes the weights, means and scales of three normals. Components may swap, and modes "
        "with a component on a few observations exist: chains agree on the density long before they agree on weights."
    ),
    references=("C. Bishop (1994), Mixture density networks.",),
    prior=PriorChoice(
        scale="N(0, 1.5² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "E[y | x] has a prior standard deviation near 1; component scales are exp(f - 1.5) + 0.02, near 0.2 and "
            "below 2."
        ),
        spread=1.0,
    ),
    model=make_model,
    source=make_data,
    methods={
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "map": MAP(num_members=8, num_steps=3000, polish_steps=0),
        "ensemble": DeepEnsemble(5, num_steps=1000, held_out=0.2),
        "mfvi": MeanFieldVI(num_steps=6000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000),
)
