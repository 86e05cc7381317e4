"""The two-cluster problem of Foong et al. (2020) with two hidden layers."""

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, NUTS, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.cards.foong_one_layer import NOISE, make_data

__all__ = ["CARD"]


def make_model() -> Model:
    """Return two layers of 20 ReLU units with noise of standard deviation 0.1."""
    net = models.mlp(2, (20, 20), 1, activation="relu")
    return models.supervised(net, models.priors.fan_in(2.0), models.likelihoods.gaussian(scale=NOISE))


CARD = Card(
    name="foong-two-layers",
    title="Two clusters in the plane, two hidden layers of 20 ReLU units",
    description=(
        "The data of foong-one-layer under a deeper network. With two hidden layers a mean-field approximation could "
        "be uncertain in the gap, but its optimum is not; the exact posterior is again the yardstick."
    ),
    references=(
        "A. Foong, D. Burt, Y. Li, R. Turner (2020), On the expressiveness of approximate inference in Bayesian neural "
        "networks, NeurIPS.",
    ),
    prior=PriorChoice(
        scale="N(0, 2² / fan-in) for weights, N(0, 1) for biases",
        why=(
            "Each ReLU layer multiplies the variance of its input by half the squared scale: a scale of two keeps "
            "functions of a network of two layers at a standard deviation of about four; a scale of four would give "
            "eight times as much."
        ),
        spread=4.1,
    ),
    model=make_model,
    source=make_data,
    needs="foong2d/hmc_1HL.npz",
    methods={
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "nuts": NUTS(num_warmup=500, num_draws=500),
        "laplace": Laplace(map=MAP(num_members=4, num_steps=3000)),
        "mfvi": MeanFieldVI(num_steps=6000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=4000),
)
