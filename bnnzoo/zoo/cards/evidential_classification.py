"""Deep evidential classification."""

import numpy as np

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import FGSM, DeepEnsemble
from bnnzoo.zoo.budgets import point_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data() -> CardData:
    """Return scikit-learn's iris, standardised."""
    split = datasets.iris().split(test_size=0.3, seed=0).standardized()
    return CardData(
        {"x": split.x_train, "y": split.y_train.astype(np.int64)},
        {"x": split.x_test, "y": split.y_test.astype(np.int64)},
        "scikit-learn's iris: three species from four lengths, standardised; 30% are for predictions.",
    )


def make_model() -> Model:
    """Return ten ReLU units with the evidence for each class as outputs."""
    net = models.mlp(4, (10,), 3, activation="relu")
    return models.supervised(net, models.priors.fan_in(2.0), models.dirichlet_evidence(0.01))


CARD = Card(
    name="evidential-classification",
    title="Deep evidential classification",
    description=(
        "A network returns the concentrations of a Dirichlet distribution over class probabilities. Its strength is "
        "evidence, and grows far from all data like any other function of a network: the gallery shows it. The "
        "regularised loss is no log density, so only methods that maximise apply."
    ),
    references=(
        (
            "M. Sensoy, L. Kaplan, M. Kandemir (2018), Evidential deep learning to quantify classification "
            "uncertainty, NeurIPS."
        ),
        (
            "V. Bengs, E. Hüllermeier, W. Waegeman (2022), Pitfalls of epistemic uncertainty quantification through "
            "loss minimisation."
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "The largest of three probabilities is about 0.5 on average, a little more than a third; the prior acts "
            "as weight decay."
        ),
        spread=0.5,
    ),
    model=make_model,
    source=make_data,
    methods=point_methods() | {"adversarial": DeepEnsemble(5, num_steps=2000, adversarial=FGSM(0.05))},
)
