"""Counts whose logarithmic rate is a Gaussian process."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.types import Model
from bnnzoo.inference import NUTS
from bnnzoo.zoo.budgets import statistical_methods
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData
from bnnzoo.zoo.posteriordb_data import LICENCE_OF_DATA, posteriordb_data

__all__ = ["CARD", "ProcessCounts"]

JITTER = 1e-10


@dataclass(frozen=True, eq=False)
class ProcessCounts:
    """The model ``model(place, y=None)``: Poisson counts at ``x[places]``, which ``place`` counts from 0."""

    x: Tensor

    def __call__(self, place: Tensor, y: Tensor | None = None) -> None:
        """Sample the length scale, the amplitude and the process (non-centred), and observe counts ``y[N]``."""
        rho = pyro.sample("rho", dist.Gamma(25.0, 4.0))
        alpha = pyro.sample("alpha", dist.HalfNormal(2.0))
        z = pyro.sample("f_tilde", dist.Normal(0.0, 1.0).expand([len(self.x)]).to_event(1))
        x = self.x.to(rho)
        covariance = alpha**2 * (-0.5 * (x[:, None] - x).square() / rho**2).exp() + JITTER * torch.eye(len(x)).to(x)
        f = pyro.deterministic("f", torch.linalg.cholesky(covariance) @ z)
        with pyro.plate("data", len(place)):
            pyro.sample("y", dist.Poisson(f.exp()[place]), obs=y)


def make_data() -> CardData:
    """Return eleven counts, at whose places the rates are predicted."""
    counts = posteriordb_data("gp_pois_regr")["k"]
    recipe = (
        "Eleven counts at -10, -8, ..., 10, simulated from a Poisson distribution whose logarithmic rate is a Gaussian process, "
        "as in posteriordb; the test rows are their rates."
    )
    place = np.arange(len(counts))
    return CardData({"place": place, "y": counts}, {"place": place}, recipe)


def make_model() -> Model:
    """Return the process at the places of the counts."""
    return ProcessCounts(torch.as_tensor(posteriordb_data("gp_pois_regr")["x"], dtype=torch.float64))


CARD = Card(
    name="gaussian-process-counts",
    title="Poisson counts with a Gaussian process",
    description=(
        "Eleven counts between 3 and 82 at equal distances. The logarithm of their rate is a Gaussian process with a squared "
        "exponential covariance, of which eleven counts tell the amplitude and the length scale only roughly. Neighbours are "
        "closer to each other than a length scale, so that the covariance is nearly singular. It is gp_pois_regr of "
        "posteriordb."
    ),
    references=(
        "C. Rasmussen, C. Williams (2006), Gaussian processes for machine learning, chapter 2.",
        "M. Magnusson et al. (2024), posteriordb: testing, benchmarking and developing Bayesian inference algorithms.",
    ),
    prior=PriorChoice(
        scale="Gamma(25, 4) for the length scale, HalfNormal(2) for the amplitude",
        why="That of posteriordb: half the central 68% of the rates is about 2.1, and the largest rates are in the hundreds.",
        spread=2.1,
    ),
    model=make_model,
    source=make_data,
    methods=statistical_methods(mams_warmup=1000, target_accept=0.9),
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000, target_accept=0.99),
    data_licence=LICENCE_OF_DATA,
)
