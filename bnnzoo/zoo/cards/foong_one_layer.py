"""The two-cluster problem of Foong et al. (2020) with one hidden layer."""

from pathlib import Path

import numpy as np

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, NUTS, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "diagonal", "make_data"]

NOISE = 0.1


def make_data(path: Path) -> CardData:
    """Read inputs [100, 2] and outputs [100] from the file of the paper, and predict along the diagonal."""
    with np.load(path) as arrays:
        x, y = arrays["inputs"].astype(float), arrays["outputs"].astype(float).ravel()
    recipe = (
        "100 observations in two clusters of inputs in the plane (Foong et al., 2020); predictions along the diagonal."
    )
    return CardData({"x": x, "y": y}, {"x": diagonal()}, recipe)


def diagonal(num_rows: int = 61) -> np.ndarray:
    """Return points [M, 2] on the line through both clusters.

    Examples
    --------
    >>> diagonal(3)[:, 0]
    array([-1.6,  0. ,  1.6])
    """
    place = np.linspace(-1.6, 1.6, num_rows)
    return np.stack([place, place], axis=1)


def make_model() -> Model:
    """Return 50 ReLU units with noise of standard deviation 0.1."""
    net = models.mlp(2, (50,), 1, activation="relu")
    return models.supervised(net, models.priors.fan_in(4.0), models.likelihoods.gaussian(scale=NOISE))


CARD = Card(
    name="foong-one-layer",
    title="Two clusters in the plane, one hidden layer of 50 ReLU units",
    description=(
        "One hundred observations in two clusters and nothing between them. The exact posterior is uncertain in the "
        "gap; mean-field approximations and dropout with one hidden layer cannot be, which the paper proves. The "
        "published standard deviation of the function in the gap is about 1.0, near the clusters 0.04 to 0.06."
    ),
    references=(
        "A. Foong, D. Burt, Y. Li, R. Turner (2020), On the expressiveness of approximate inference in Bayesian neural "
        "networks, NeurIPS.",
    ),
    prior=PriorChoice(
        scale="N(0, 4² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "The paper's choice: functions have a prior standard deviation of about 11 at the clusters, wide in "
            "comparison with the data, so that what is known in the gap comes from the data and the network alone."
        ),
        spread=11.0,
    ),
    model=make_model,
    source=make_data,
    needs="foong2d/hmc_1HL.npz",
    methods={
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "nuts": NUTS(num_warmup=500, num_draws=1000),
        "laplace": Laplace(map=MAP(num_members=4, num_steps=3000)),
        "mfvi": MeanFieldVI(num_steps=6000),
    },
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=2000),
)
