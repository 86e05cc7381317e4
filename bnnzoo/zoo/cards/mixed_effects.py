"""Groups with intercepts of their own around a common curve."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "MixedEffects"]

GROUPS = 8


@dataclass(frozen=True, eq=False)
class MixedEffects:
    """The model ``model(x, group, y=None)``: a network as common curve, and an intercept for each group."""

    net: nn.Module
    groups: int

    def __call__(self, x: Tensor, group: Tensor, y: Tensor | None = None) -> None:
        """Sample the curve, the intercepts (non-centred) and the noise, and observe ``y[N]``."""
        curve = models.random_module("curve", self.net, models.priors.fan_in(2.0))(x).squeeze(-1)
        spread = pyro.sample("spread", dist.HalfNormal(1.0))
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        with pyro.plate("groups", self.groups):
            unit = pyro.sample("unit", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(curve + spread * unit[group], noise), obs=y)


def make_data() -> CardData:
    """Simulate eight groups with normal intercepts."""
    rng = np.random.default_rng(130)
    offsets = 0.7 * rng.normal(size=GROUPS)

    def observe(x: np.ndarray, group: np.ndarray) -> dict[str, np.ndarray]:
        y = np.sin(2 * x) + offsets[group] + 0.25 * rng.normal(size=x.size)
        return {"x": x[:, None], "group": group, "y": y}

    train = observe(rng.uniform(-2, 2, 96), np.arange(96) % GROUPS)
    test = observe(np.tile(np.linspace(-2, 2, 6), GROUPS), np.repeat(np.arange(GROUPS), 6))
    recipe = (
        "y = sin(2 x) + a_g + N(0, 0.25²) with intercepts a_g ~ N(0, 0.7²) of eight groups, twelve observations each."
    )
    return CardData(train, test, recipe)


def make_model() -> Model:
    """Return eight tanh units as common curve of eight groups."""
    return MixedEffects(models.mlp(1, (8,)), GROUPS)


CARD = Card(
    name="mixed-effects",
    title="Mixed effects with a network as common curve",
    description=(
        "Ninety-six observations in eight groups: a network is the curve that all groups share, and each group has an "
        "intercept of its own from a common normal distribution. Groups borrow strength from each other through the "
        "curve and through the spread of the intercepts."
    ),
    references=(
        "A. Gelman, J. Hill (2007), Data analysis using regression and multilevel/hierarchical models, chapter 12.",
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases; HalfNormal(1) for the spread of intercepts",
        why="E[y | x, group] has a prior standard deviation of about 2, twice that of the responses.",
        spread=2.0,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000),
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=2000),
)
