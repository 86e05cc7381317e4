"""Logistic regression on the breast cancer data, with thirty collinear predictors."""

from bnnzoo import datasets, models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, NUTS, FullRankVI, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD"]


def make_data() -> CardData:
    """Return thirty standardised measurements, with a tenth of the tumours for predictions."""
    split = datasets.breast_cancer().split(test_size=0.1, seed=212).standardized()
    recipe = (
        "All thirty measurements of scikit-learn's breast cancer data, standardised; a tenth of the 569 tumours, at "
        "random, are the test rows."
    )
    return CardData({"x": split.x_train, "y": split.y_train}, {"x": split.x_test, "y": split.y_test}, recipe)


def make_model() -> Model:
    """Return a linear logit with normal coefficients."""
    return models.supervised(models.mlp(30, ()), models.priors.normal(0.5), models.likelihoods.bernoulli())


CARD = Card(
    name="breast-cancer-logistic",
    title="Logistic regression with thirty collinear predictors",
    description=(
        "Five hundred and twelve tumours, malignant or benign, and thirty measurements of cell nuclei: radius, "
        "perimeter and area correlate by more than 0.98. The classes are nearly separable, so that the maximum "
        "likelihood estimate is at infinity or close to it, and the prior decides how large coefficients become."
    ),
    references=(
        (
            "W. N. Street, W. H. Wolberg, O. L. Mangasarian (1993), Nuclear feature extraction for breast tumor "
            "diagnosis (the data)."
        ),
        (
            "A. Gelman, A. Jakulin, M. G. Pittau, Y.-S. Su (2008), A weakly informative default prior distribution for "
            "logistic and other regression models."
        ),
    ),
    prior=PriorChoice(
        scale="N(0, 0.5²) for the intercept and for coefficients of standardised measurements",
        why=(
            "The larger of both probabilities is 0.79 on average; at a scale of one most tumours would be certain in "
            "the prior."
        ),
        spread=0.79,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=500, num_draws=1000),
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "laplace": Laplace(map=MAP(num_steps=3000)),
        "mfvi": MeanFieldVI(num_steps=4000),
        "full-rank-vi": FullRankVI(num_steps=6000),
    },
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=1500),
)
