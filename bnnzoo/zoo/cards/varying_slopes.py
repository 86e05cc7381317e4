"""Groups with intercepts and slopes of their own, which correlate."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "VaryingSlopes"]

SIZES = np.array([2, 3, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16])
NOISE = 0.5


@dataclass(frozen=True, eq=False)
class VaryingSlopes:
    """The model ``model(x, group, y=None)``: a line for each group, intercepts and slopes jointly normal."""

    groups: int

    def __call__(self, x: Tensor, group: Tensor, y: Tensor | None = None) -> None:
        """Sample the common line, the deviations of groups (non-centred) and the noise, and observe ``y[N]``."""
        common = pyro.sample("common", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        spread = pyro.sample("spread", dist.HalfNormal(x.new_ones(2)).to_event(1))
        factor = pyro.sample("factor", dist.LKJCholesky(2, 2.0))
        noise = pyro.sample("noise", dist.HalfNormal(1.0))
        with pyro.plate("groups", self.groups):
            unit = pyro.sample("unit", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        lines = common + spread * (unit @ factor.mT)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(lines[group, 0] + lines[group, 1] * x, noise), obs=y)


def make_data() -> CardData:
    """Simulate twelve groups of two to sixteen observations."""
    rng = np.random.default_rng(204)
    covariance = np.array([[0.64, -0.24], [-0.24, 0.25]])
    lines = rng.multivariate_normal([0.2, 0.7], covariance, len(SIZES))

    def observe(x: np.ndarray, group: np.ndarray) -> dict[str, np.ndarray]:
        y = lines[group, 0] + lines[group, 1] * x + NOISE * rng.normal(size=x.size)
        return {"x": x, "group": group, "y": y}

    group = np.repeat(np.arange(len(SIZES)), SIZES)
    train = observe(rng.normal(size=group.size), group)
    test = observe(np.tile([-2.0, 0.0, 2.0], len(SIZES)), np.repeat(np.arange(len(SIZES)), 3))
    recipe = (
        "y = a_g + b_g x + N(0, 0.5²) with normal a_g and b_g of means 0.2 and 0.7, standard deviations 0.8 and 0.5 "
        "and correlation -0.6; twelve groups of two to sixteen observations."
    )
    return CardData(train, test, recipe)


def make_model() -> Model:
    """Return the model of twelve groups."""
    return VaryingSlopes(len(SIZES))


CARD = Card(
    name="varying-slopes",
    title="Varying intercepts and slopes that correlate",
    description=(
        "Ninety observations in twelve groups, the smallest with two. Each group has a line of its own, and intercepts "
        "and slopes come from a bivariate normal distribution with an unknown correlation: small groups are drawn to "
        "the common line, in both parameters at once. The deviations are non-centred."
    ),
    references=(
        "A. Gelman, J. Hill (2007), Data analysis using regression and multilevel/hierarchical models, chapter 13.",
        (
            "D. Lewandowski, D. Kurowicka, H. Joe (2009), Generating random correlation matrices based on vines and "
            "extended onion method."
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 1) for the common line, HalfNormal(1) for spreads and noise, LKJ(2) for the correlation",
        why="E[y | x, group] has a prior standard deviation of about 1.7, a little more than that of the responses.",
        spread=1.7,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000, target_accept=0.9),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000, target_accept=0.95),
)
