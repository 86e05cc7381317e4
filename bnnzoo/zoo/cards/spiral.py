"""Three arms of a spiral."""

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import FGSM, MAMS, SWAG, DeepEnsemble, MeanFieldVI, MultiSWAG
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data() -> CardData:
    """Return the observations of ``datasets.spiral``, and two hundred new ones of each arm."""
    train, test = datasets.spiral(), datasets.spiral(600, seed=1)
    recipe = (
        "`bz.datasets.spiral()`: 1,000 observations of each arm, of a course's practical. Along arm j the radius r rises "
        "from 0 to 1 and the angle from 8 j to 8 (j + 1), with noise N(0, 0.3² (1 + r)²). Predictions: 600 new ones."
    )
    return CardData({"x": train.x, "y": train.y}, {"x": test.x, "y": test.y}, recipe)


def make_model() -> Model:
    """Return two layers of 16 ReLU units."""
    net = models.mlp(2, (16, 16), 3, activation="relu")
    return models.supervised(net, models.priors.fan_in(2.5), models.likelihoods.categorical())


CARD = Card(
    name="spiral",
    version=2,
    title="Three arms of a spiral",
    description=(
        "Three thousand observations in three arms that wind around each other, with noise that grows outwards. Networks "
        "separate the arms; methods differ in how sure they are outside of them, which the gallery shows in maps, "
        "with the practical's own settings: a network 2-150-150-3, 300 steps of Adam at 0.1 and a penalty of 9 times the "
        "norm of the weights, for which an accuracy of 0.964 and a loss of 0.106 are documented; four such networks have "
        "0.962 and 0.111 there."
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
        "adversarial": DeepEnsemble(5, num_steps=2000, adversarial=FGSM(0.01)),
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=4000),
        "multiswag": MultiSWAG(5, SWAG(num_steps=1000, batch_size=50)),
    },
)
