"""A method that knows the posterior, and can be told to break any promise of a method."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyro
import torch

from bnnzoo.core.method import Need
from bnnzoo.core.posterior.covariance import Dense
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.testing import linear_gaussian

__all__ = ["INFO", "TARGET", "Oracle"]

TARGET = linear_gaussian(correlation=0.0)
INFO = FitInfo(sampling="iid", num_gradients=1)


@dataclass(frozen=True)
class Oracle:
    """Knows the posterior; every argument spoils something."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    shift: float = 0.0
    scale: float = 1.0
    noise: float = 0.0
    touches_stream: bool = False
    touches_store: bool = False
    info: FitInfo = INFO

    def run(self, density, context):
        """Return the exact posterior, or almost."""
        if self.touches_stream:
            torch.rand(1)
        if self.touches_store:
            pyro.param("leak", torch.zeros(1))
        sd = TARGET.sd["w"].to(density.dtype)
        loc = TARGET.mean["w"].to(density.dtype) + sd * (self.shift + self.noise * np.random.default_rng().normal())
        factor = self.scale * torch.linalg.cholesky(TARGET.covariance).to(density.dtype)
        return Gaussian(density, self.info, loc, Dense(factor))
