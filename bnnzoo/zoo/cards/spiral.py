"""Three arms of a spiral."""

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import FGSM, MAMS, SWAG, DeepEnsemble, MeanFieldVI, MultiSWAG
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate one hundred observations of each arm, and new ones for predictions."""
    rng = np.random.default_rng(115)

    def arms(count: int) -> tuple[np.ndarray, np.ndarray]:
        radius = np.linspace(0.05, 1.0, count)
        angles = [4 * radius + 2 * np.pi * arm / 3 + 0.2 * rng.normal(size=count) for arm in range(3)]
        x = np.concatenate([np.stack([radius * np.sin(a), radius * np.cos(a)], axis=1) for a in angles])
        return x, np.repeat(np.arange(3), count)

    (x, y), (x_test, y_test) = arms(100), arms(20)
    recipe = "Arm k at radius r has the angle 4 r + 2 π k / 3 + N(0, 0.2²), with r from 0.05 to 1."
    return CardData({"x": x, "y": y}, {"x": x_test, "y": y_test}, recipe)


def make_model() -> Model:
    """Return two layers of 16 ReLU units."""
    net = models.mlp(2, (16, 16), 3, activation="relu")
    return models.supervised(net, models.priors.fan_in(2.5), models.likelihoods.categorical())


CARD = Card(
    name="spiral",
    title="Three arms of a spiral",
    description=(
        "Three hundred observations in three arms that wind around each other. Networks separate the arms; methods "
        "differ in how sure they are outside of them, which the gallery shows in maps."
    ),
    references=("A. Karpathy, notes of the course CS231n, where the spiral is the first example of a network.",),
    prior=PriorChoice(
        scale="N(0, 2.5² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "The largest of three probabilities is about 0.84 on average: a draw from the prior is often, but not "
            "always, decided."
        ),
        spread=0.84,
    ),
    model=make_model,
    source=make_data,
    methods={
        "ensemble": DeepEnsemble(5, num_steps=2000),
        "adversarial": DeepEnsemble(5, num_steps=2000, adversarial=FGSM(0.02)),
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=4000),
        "multiswag": MultiSWAG(5, SWAG(num_steps=1000, batch_size=50)),
    },
)
