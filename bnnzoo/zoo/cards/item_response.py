"""Answers of persons to the items of a test."""

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

__all__ = ["CARD", "ItemResponse"]

PERSONS, ITEMS, HELD_OUT = 40, 12, 48


@dataclass(frozen=True, eq=False)
class ItemResponse:
    """The model ``model(person, item, y=None)``: a logistic model of two parameters for each item."""

    persons: int
    items: int

    def __call__(self, person: Tensor, item: Tensor, y: Tensor | None = None) -> None:
        """Sample abilities, difficulties and discriminations, and observe whether answers are right, ``y[N]``."""
        with pyro.plate("persons", self.persons):
            ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        with pyro.plate("items", self.items):
            difficulty = pyro.sample("difficulty", dist.Normal(0.0, 1.0))
            discrimination = pyro.sample("discrimination", dist.LogNormal(0.0, 0.5))
        logits = discrimination[item] * (ability[person] - difficulty[item])
        with pyro.plate("data", len(person)):
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def make_data() -> CardData:
    """Simulate the answers of 40 persons to twelve items, a tenth of them held out."""
    rng = np.random.default_rng(205)
    ability, difficulty = rng.normal(size=PERSONS), rng.normal(size=ITEMS)
    discrimination = np.exp(0.2 + 0.4 * rng.normal(size=ITEMS))
    person, item = rng.permutation([(p, i) for p in range(PERSONS) for i in range(ITEMS)]).T
    logits = discrimination[item] * (ability[person] - difficulty[item])
    right = (rng.uniform(size=logits.size) < 1 / (1 + np.exp(-logits))).astype(float)
    parts = (slice(HELD_OUT, None), slice(HELD_OUT))
    train, test = ({"person": person[part], "item": item[part], "y": right[part]} for part in parts)
    recipe = (
        "P(y = 1) = logistic(a_i (t_p - b_i)) with t_p and b_i ~ N(0, 1) and log a_i ~ N(0.2, 0.4²), for 40 persons "
        "and twelve items; 48 of 480 answers are the test rows."
    )
    return CardData(train, test, recipe)


def make_model() -> Model:
    """Return the model of 40 persons and twelve items."""
    return ItemResponse(PERSONS, ITEMS)


CARD = Card(
    name="item-response",
    title="Item response, two-parameter logistic model",
    description=(
        "Forty persons answer twelve items, right or wrong. A person has an ability, an item a difficulty and a "
        "discrimination, which multiplies the difference of both: the posterior is not normal, since discriminations "
        "are positive and their products with abilities are what the answers know. Test rows are answers held out."
    ),
    references=(
        "A. Birnbaum (1968), Some latent trait models and their use in inferring an examinee's ability.",
        "J.-P. Fox (2010), Bayesian item response modeling: theory and applications.",
    ),
    prior=PriorChoice(
        scale="N(0, 1) for abilities and difficulties, LogNormal(0, 0.5²) for discriminations",
        why="The larger of both probabilities is 0.73 on average: neither persons nor items decide answers alone.",
        spread=0.73,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=1000),
)
