"""Two lines that meet at an unknown place."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.inference import MAMS, NUTS, FullRankVI, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "BrokenStick"]

NOISE = 0.3


@dataclass(frozen=True, eq=False)
class BrokenStick:
    """The model ``model(x, y=None)``: a line whose slope changes once on [0, 1]."""

    def __call__(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sample the place, the level there, both slopes and the noise, and observe ``y[N]``."""
        place = pyro.sample("place", dist.Beta(2.0, 2.0))
        level = pyro.sample("level", dist.Normal(0.0, 1.0))
        before = pyro.sample("before", dist.Normal(0.0, 3.0))
        after = pyro.sample("after", dist.Normal(0.0, 3.0))
        noise = pyro.sample("noise", dist.HalfNormal(0.5))
        away = x - place
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(level + before * away.clamp(max=0) + after * away.clamp(min=0), noise), obs=y)


def make_data() -> CardData:
    """Simulate a rise that ends at 0.6."""
    rng = np.random.default_rng(214)

    def observe(x: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "x": x,
            "y": 0.8 + 2.5 * np.minimum(x - 0.6, 0) - 0.7 * np.maximum(x - 0.6, 0) + NOISE * rng.normal(size=x.size),
        }

    recipe = "y = 0.8 + 2.5 min(x - 0.6, 0) - 0.7 max(x - 0.6, 0) + N(0, 0.3²) with x uniform on [0, 1]."
    return CardData(observe(rng.uniform(0, 1, 50)), observe(np.linspace(-0.1, 1.1, 37)), recipe)


CARD = Card(
    name="change-point",
    title="Change point, two lines that meet",
    description=(
        "Fifty observations along a line whose slope changes once, at an unknown place. The mean is continuous, and "
        "so is the posterior density, but its gradient jumps where the place passes an observation. Place, level and "
        "slopes are known together: the later the change, the steeper the second line."
    ),
    references=(
        "S. Julious (2001), Inference and estimation in a changepoint regression problem.",
        "V. Muggeo (2003), Estimating regression models with unknown break-points.",
    ),
    prior=PriorChoice(
        scale=(
            "Beta(2, 2) for the place, N(0, 1) for the level there, N(0, 3²) for slopes, HalfNormal(0.5) for the noise"
        ),
        why="E[y | x] has a prior standard deviation of about 1.35, and the responses one of 0.6.",
        spread=1.35,
    ),
    model=BrokenStick,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=500, num_draws=1000, target_accept=0.9),
        "mams": MAMS(num_warmup=1000, num_draws=4000),
        "mfvi": MeanFieldVI(num_steps=4000),
        "full-rank-vi": FullRankVI(num_steps=6000),
    },
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000, target_accept=0.95),
)
