"""Survival times, some of them censored, with a network as scale."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, NUTS, DeepEnsemble, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData

__all__ = ["CARD", "Survival"]

END = 3.0


@dataclass(frozen=True, eq=False)
class Survival:
    """The model ``model(x, time=None, event=None)``: Weibull times with a network as log scale.

    ``event`` is true where the time was observed, and false where the subject was still at risk at ``time``.
    """

    net: nn.Module

    def __call__(self, x: Tensor, time: Tensor | None = None, event: Tensor | None = None) -> None:
        """Sample the weights and the shape, observe times, and count the survival of censored rows."""
        scale = models.random_module("net", self.net, models.priors.fan_in(1.0, 0.5))(x).squeeze(-1).exp()
        shape = pyro.sample("shape", dist.LogNormal(0.0, 0.5))
        seen: Any = True if event is None else event
        with pyro.plate("data", len(x)):
            with pyro.poutine.mask(mask=seen):
                pyro.sample("time", dist.Weibull(scale, shape, validate_args=False), obs=time)
            if event is not None:
                pyro.factor("later", torch.where(event, 0.0, -((time / scale) ** shape)))


def make_data() -> CardData:
    """Simulate times that are censored at the end of the study."""
    rng = np.random.default_rng(129)
    x = rng.normal(size=(180, 2))
    times = np.exp(0.5 + np.sin(1.5 * x[:, 0]) - 0.3 * x[:, 1]) * rng.weibull(1.5, 180)
    event, train, test = times < END, slice(140), slice(140, None)
    recipe = "Weibull times of shape 1.5 and scale exp(0.5 + sin(1.5 x1) - 0.3 x2), censored at 3."
    return CardData(
        {"x": x[train], "time": np.minimum(times, END)[train], "event": event[train]},
        {"x": x[test]},
        recipe,
        observed=("time", "event"),
    )


def make_model() -> Model:
    """Return eight tanh units."""
    return Survival(models.mlp(2, (8,)))


CARD = Card(
    name="censored-survival",
    title="Censored survival times, Weibull with a network as scale",
    description=(
        "One hundred and forty times to an event, one in six of them censored at the end of the study: of these "
        "only the survival function enters the likelihood. Leaving them out, or taking the end for the event, would "
        "make all predictions too short."
    ),
    references=("J. Klein, M. Moeschberger (2003), Survival analysis, chapter 12.",),
    prior=PriorChoice(
        scale="N(0, 1 / fan-in) for weights, N(0, 0.5²) for biases; LogNormal(0, 0.5²) for the shape",
        why="Mean times have a central 68% between about 0.4 and 2.6 times the unit of time, or half a width of 1.1.",
        spread=1.1,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=500, num_draws=1000),
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=3000),
        "ensemble": DeepEnsemble(10, num_steps=2000),
    },
    long_run=MAMS(num_chains=8, num_warmup=1000, num_draws=2000),
)
