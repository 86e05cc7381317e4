"""Neal's three-way classification with inputs that do not matter, simulated by the same kind of recipe."""

import numpy as np
import pyro.distributions as dist

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, DeepEnsemble, MeanFieldVI
from bnnzoo.models.priors import ard, by_parameter, fan_in
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, split_data

__all__ = ["CARD"]


def make_data() -> CardData:
    """Simulate four inputs, two of which decide the class."""
    rng = np.random.default_rng(108)
    clean = rng.uniform(size=(360, 4))
    near = (clean[:, 0] - 0.4) ** 2 + (clean[:, 1] - 0.5) ** 2 < 0.35**2
    below = 0.8 * clean[:, 0] + 1.8 * clean[:, 1] < 0.6
    y = np.where(near, 0, np.where(below, 1, 2)).astype(np.int64)
    x = (clean + 0.1 * rng.normal(size=clean.shape) - 0.5) / 0.3
    recipe = (
        "Four uniform inputs with noise, of which the first two decide: class 0 within a disc, class 1 below a line, "
        "class 2 elsewhere."
    )
    return split_data(x, y, 300, recipe)


def make_model() -> Model:
    """Return eight tanh units with one scale per input."""
    prior = by_parameter({"0.weight": ard(dist.HalfNormal(2.0))}, default=fan_in(2.5, 1.0))
    return models.supervised(models.mlp(4, (8,), 3), prior, models.likelihoods.categorical())


CARD = Card(
    name="neal-three-classes",
    title="Three classes, automatic relevance determination",
    description=(
        "Three hundred observations of four inputs, of which two decide the class and two are noise, after the three-"
        "way example of Neal's software. Each input has a scale of its own in the first layer: the posterior of the "
        "scales says which inputs matter."
    ),
    references=(
        "R. Neal (1996), Bayesian learning for neural networks; and its software's documentation, Ex-netgp-c.",
        "D. MacKay (1994), Bayesian methods for backpropagation networks.",
    ),
    prior=PriorChoice(
        scale="N(0, s²) for the weights of each input with s ~ HalfNormal(2); N(0, 2.5² / fan-in) for output weights",
        why="The largest of three probabilities is about 0.77 on average; a third would be undecided, one certain.",
        spread=0.77,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=500, num_draws=1000, target_accept=0.9),
        "mams": MAMS(num_warmup=1000, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=4000),
        "ensemble": DeepEnsemble(10, num_steps=2000),
    },
    long_run=MAMS(num_chains=8, num_warmup=500, num_draws=1500),
)
