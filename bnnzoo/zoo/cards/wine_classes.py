"""Three cultivars of wine from four measurements."""

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, NUTS, FullRankVI, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]

NAMES = ("alcohol", "malic_acid", "magnesium", "hue")
CLASSES = 3


def make_data() -> CardData:
    """Return four standardised measurements, with a quarter of the wines for predictions."""
    wine = datasets.wine()
    split = wine.split(test_size=0.25, seed=210).standardized()
    columns = [wine.features.index(name) for name in NAMES]
    recipe = (
        "Alcohol, malic acid, magnesium and hue of scikit-learn's wine data, standardised; a quarter of the 178 wines, "
        "at random, are the test rows."
    )
    return CardData(
        {"x": split.x_train[:, columns], "y": split.y_train}, {"x": split.x_test[:, columns], "y": split.y_test}, recipe
    )


def make_model() -> Model:
    """Return a linear predictor for each class."""
    return models.supervised(
        models.mlp(len(NAMES), (), CLASSES), models.priors.normal(1.0), models.likelihoods.categorical()
    )


CARD = Card(
    name="wine-classes",
    title="Multinomial logistic regression on three kinds of wine",
    description=(
        "One hundred and thirty-three wines of three cultivars and four of their thirteen measurements, which leave "
        "some wines in doubt. Every class has a linear predictor: a constant added to all three changes nothing, so "
        "that the prior alone identifies their level, and coefficients are known only as differences."
    ),
    references=(
        (
            "M. Forina et al., Parvus: an extendible package for data exploration, classification and correlation (the "
            "data)."
        ),
        "A. Agresti (2013), Categorical data analysis, chapter 8.",
    ),
    prior=PriorChoice(
        scale="N(0, 1) for every coefficient of standardised measurements",
        why=(
            "The largest of three probabilities is 0.74 on average: some wines are certain in the prior, and most are "
            "not."
        ),
        spread=0.74,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=500, num_draws=1000),
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "laplace": Laplace(map=MAP(num_steps=2000)),
        "mfvi": MeanFieldVI(num_steps=3000),
        "full-rank-vi": FullRankVI(num_steps=4000),
    },
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000),
)
