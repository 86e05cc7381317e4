"""A polynomial on data with a gap, in closed form given its noise."""

import numpy as np
import torch
from torch import Tensor, nn

from bnnzoo import models
from bnnzoo.core.types import Model
from bnnzoo.inference import MAMS, MAP, NUTS, FullRankVI, Laplace, MeanFieldVI
from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.data import CardData, line_data

__all__ = ["CARD", "NOISE", "Polynomial"]

NOISE = 0.2
DEGREE = 5


class Polynomial(nn.Module):
    """Sum of Chebyshev polynomials of one input [N, 1] on [-3, 3], with a linear layer of coefficients."""

    def __init__(self, degree: int = DEGREE) -> None:
        super().__init__()
        self.degree, self.linear = degree, nn.Linear(degree, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [N, 1] to [N, 1]."""
        terms = [torch.ones_like(x), x / 3]
        for _ in range(2, self.degree + 1):
            terms.append(2 * x / 3 * terms[-1] - terms[-2])
        output: Tensor = self.linear(torch.cat(terms[1:], dim=-1))
        return output


def make_data() -> CardData:
    """Simulate a sine with a gap."""
    rng = np.random.default_rng(103)
    x = np.where(np.arange(40) % 2 == 0, -1.0, 1.0) * rng.uniform(1.0, 3.0, 40)
    grid = np.linspace(-3.0, 3.0, 49)
    y, y_grid = (np.sin(2 * z) + 0.3 * z + NOISE * rng.normal(size=z.size) for z in (x, grid))
    recipe = "y = sin(2 x) + 0.3 x + N(0, 0.2²) with x uniform on [-3, -1] and [1, 3]."
    return line_data(x, y, grid, y_grid, recipe)


def make_model() -> Model:
    """Return a polynomial of degree five with noise of known size."""
    return models.supervised(Polynomial(), models.priors.normal(1.0), models.likelihoods.gaussian(scale=NOISE))


CARD = Card(
    name="polynomial-gap",
    title="Polynomial of degree five, data with a gap",
    description=(
        "Forty observations with nothing between -1 and 1, and Chebyshev polynomials up to degree five as features. "
        "The model is linear in its coefficients and the noise is known, so the posterior has a closed form; unlike in "
        "simple regression, the coefficients are strongly correlated and the predictive standard deviation in the gap "
        "is what methods differ in."
    ),
    references=("C. Bishop (2006), Pattern recognition and machine learning, section 3.3.",),
    prior=PriorChoice(
        scale="N(0, 1) for each coefficient of a Chebyshev polynomial",
        why=(
            "Every feature lies between -1 and 1, so that functions have a prior standard deviation near 1.7 at all x, "
            "a little more than the largest responses; powers of x would make it explode at the ends."
        ),
        spread=1.7,
    ),
    model=make_model,
    source=make_data,
    methods={
        "nuts": NUTS(num_warmup=500, num_draws=1000),
        "mams": MAMS(num_warmup=500, num_draws=2000),
        "laplace": Laplace(map=MAP(num_steps=300)),
        "full-rank-vi": FullRankVI(num_steps=3000),
        "mfvi": MeanFieldVI(num_steps=3000),
    },
    long_run=NUTS(num_chains=8, num_warmup=1000, num_draws=4000, mass_matrix="diagonal"),
)
