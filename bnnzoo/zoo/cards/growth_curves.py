"""Growth of ten plants, each to a size of its own."""

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

__all__ = ["CARD", "GrowthCurves"]

PLANTS, NOISE = 10, 0.08
LAST = np.array([10, 10, 10, 10, 10, 10, 6, 6, 4, 4])


@dataclass(frozen=True, eq=False)
class GrowthCurves:
    """The model ``model(time, plant, y=None)``: logistic growth to an asymptote that varies by plant."""

    plants: int

    def __call__(self, time: Tensor, plant: Tensor, y: Tensor | None = None) -> None:
        """Sample the curve, the asymptotes (log-normal, non-centred) and the noise, and observe sizes ``y[N]``."""
        typical = pyro.sample("typical", dist.Normal(0.0, 0.5))
        spread = pyro.sample("spread", dist.HalfNormal(0.5))
        middle = pyro.sample("middle", dist.Normal(5.0, 2.0))
        width = pyro.sample("width", dist.LogNormal(0.5, 0.5))
        noise = pyro.sample("noise", dist.HalfNormal(0.2))
        with pyro.plate("plants", self.plants):
            unit = pyro.sample("unit", dist.Normal(0.0, 1.0))
        asymptote = (typical + spread * unit).exp()
        size = asymptote[plant] * ((time - middle) / width).sigmoid()
        with pyro.plate("data", len(time)):
            pyro.sample("y", dist.Normal(size, noise), obs=y)


def make_data() -> CardData:
    """Simulate ten plants, four of which are not yet grown when observation ends."""
    rng = np.random.default_rng(216)
    asymptote = np.exp(0.3 + 0.25 * rng.normal(size=PLANTS))

    def observe(time: np.ndarray, plant: np.ndarray) -> dict[str, np.ndarray]:
        size = asymptote[plant] / (1 + np.exp(-(time - 4.5) / 1.2))
        return {"time": time, "plant": plant, "y": size + NOISE * rng.normal(size=time.size)}

    plant = np.repeat(np.arange(PLANTS), LAST)
    train = observe(np.concatenate([np.arange(1.0, last + 1) for last in LAST]), plant)
    test = observe(np.tile([2.5, 5.5, 8.5, 12.0], PLANTS), np.repeat(np.arange(PLANTS), 4))
    recipe = (
        "y = A_p / (1 + exp(-(t - 4.5) / 1.2)) + N(0, 0.08²) with log A_p ~ N(0.3, 0.25²); six plants observed weekly "
        "for ten weeks, two for six and two for four; predictions up to week twelve."
    )
    return CardData(train, test, recipe)


def make_model() -> Model:
    """Return the model of ten plants."""
    return GrowthCurves(PLANTS)


CARD = Card(
    name="growth-curves",
    title="Growth curves, a nonlinear hierarchical model",
    description=(
        "Sizes of ten plants over up to ten weeks. All grow logistically at the same pace, each to an asymptote of its "
        "own from a common log-normal distribution. Plants observed for four weeks only take their asymptote from the "
        "others, and from how fast they began."
    ),
    references=("J. Pinheiro, D. Bates (2000), Mixed-effects models in S and S-PLUS, chapter 8.",),
    prior=PriorChoice(
        scale=(
            "N(0, 0.5²) for the typical log asymptote, HalfNormal(0.5) for its spread, N(5, 2²) for the middle in "
            "weeks, LogNormal(0.5, 0.5²) for the width, HalfNormal(0.2) for the noise"
        ),
        why=(
            "Half the central 68% of expected sizes is about 0.41 at a typical week, and grown plants are between 0.5 "
            "and 2."
        ),
        spread=0.41,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000, target_accept=0.9),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=2000, target_accept=0.9),
)
