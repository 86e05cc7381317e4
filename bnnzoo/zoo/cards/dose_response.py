"""The response to a dose, between two asymptotes."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
from torch import Tensor

from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "DoseResponse"]

DOSES, REPLICATES = np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0]), 5


@dataclass(frozen=True, eq=False)
class DoseResponse:
    """The model ``model(dose, y=None)``: a logistic curve of four parameters in the logarithm of the dose."""

    def __call__(self, dose: Tensor, y: Tensor | None = None) -> None:
        """Sample both asymptotes, the slope, the middle and the noise, and observe ``y[N]``."""
        bottom = pyro.sample("bottom", dist.Normal(0.0, 0.5))
        top = pyro.sample("top", dist.Normal(1.0, 0.5))
        log_ed50 = pyro.sample("log_ed50", dist.Normal(0.0, 1.5))
        slope = pyro.sample("slope", dist.LogNormal(0.0, 0.5))
        noise = pyro.sample("noise", dist.HalfNormal(0.2))
        mean = bottom + (top - bottom) * (slope * (dose.log() - log_ed50)).sigmoid()
        with pyro.plate("data", len(dose)):
            pyro.sample("y", dist.Normal(mean, noise), obs=y)


def make_data() -> CardData:
    """Simulate six doses, five times each, and predict at larger ones, too."""
    rng = np.random.default_rng(213)

    def observe(dose: np.ndarray) -> dict[str, np.ndarray]:
        mean = 0.1 + 0.8 / (1 + (0.7 / dose) ** 1.3)
        return {"dose": dose, "y": mean + 0.1 * rng.normal(size=dose.size)}

    recipe = (
        "y = 0.1 + 0.8 / (1 + (0.7 / dose)^1.3) + N(0, 0.1²), five times at each of six doses from 0.01 to 3; "
        "predictions for doses from 0.01 to 30."
    )
    return CardData(observe(np.repeat(DOSES, REPLICATES)), observe(np.geomspace(0.01, 30, 36)), recipe)


CARD = Card(
    name="dose-response",
    title="Dose and response, four-parameter logistic curve",
    description=(
        "Thirty responses to six doses. The curve rises from one unknown asymptote to another, and the largest dose "
        "has not reached the upper one: it is known together with the dose of half the effect and the slope, along a "
        "curved ridge of the posterior. Predictions go on to ten times the largest dose."
    ),
    references=("C. Ritz, F. Baty, J. Streibig, D. Gerhard (2015), Dose-response analysis using R.",),
    prior=PriorChoice(
        scale=(
            "N(0, 0.5²) and N(1, 0.5²) for the asymptotes, N(0, 1.5²) for the log dose of half the effect, "
            "LogNormal(0, 0.5²) for the slope, HalfNormal(0.2) for the noise"
        ),
        why=(
            "Half the central 68% of expected responses, which are fractions of a control, is about 0.45 at a typical "
            "dose."
        ),
        spread=0.45,
    ),
    model=DoseResponse,
    source=make_data,
    methods=statistical_methods(target_accept=0.9),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=5000, target_accept=0.95),
)
