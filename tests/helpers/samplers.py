"""Samplers with budgets that suffice for small targets, and what their tests share."""

from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.inference import HMC, MAMS, MCLMC, NUTS, ChEESHMC, Tempered

__all__ = ["BIAS", "SAMPLERS", "SHORT", "log_density", "log_density_gradient", "values"]

SHORT: dict[str, Any] = {"num_chains": 4, "num_warmup": 200, "num_draws": 150}
SAMPLERS = {
    "NUTS": NUTS(**SHORT),
    "NUTS, dense": NUTS(**SHORT, mass_matrix="dense"),
    "NUTS, low rank": NUTS(**SHORT, mass_matrix="low_rank"),
    "NUTS, diagonal": NUTS(**SHORT, mass_matrix="diagonal"),
    "NUTS, fisher": NUTS(**SHORT, mass_matrix="fisher"),
    "HMC": HMC(**SHORT),
    "ChEES-HMC": ChEESHMC(**SHORT),
    "MAMS": MAMS(**SHORT),
    "MCLMC": MCLMC(**SHORT, energy_variance=1e-5),
    "Tempered": Tempered(HMC(**SHORT), num_temperatures=6),
}
BIAS = {"MCLMC": 0.02}
"""Allowance for a sampler that is not exact, at an energy variance a fiftieth of its default; exact samplers get none."""

PRECISION = torch.tensor([1.0, 4.0, 0.5, 2.0], dtype=torch.float64)


def values(posterior: Draws, site: str) -> Any:
    """Return the constrained draws of one site."""
    return posterior.density.constrain(posterior.draws())[site].numpy()


def log_density(theta: Tensor) -> Tensor:
    """An unnormalised log density over four parameters, not Gaussian, for tests of integrators."""
    return -0.5 * (PRECISION * theta.square()).sum(-1) - 0.1 * theta.pow(4).sum(-1)


def log_density_gradient(theta: Tensor) -> Tensor:
    """The gradient of :func:`log_density`."""
    return -PRECISION * theta - 0.4 * theta.pow(3)
