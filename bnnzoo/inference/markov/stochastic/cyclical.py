"""Cyclical stochastic-gradient MCMC (Zhang, Li, Zhang, Chen and Wilson 2020)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.settings import Count, Fraction
from bnnzoo.inference.markov.stochastic.sgld import Langevin
from bnnzoo.inference.markov.stochastic.stochastic_sampler import sample_stochastic
from bnnzoo.inference.markov.stochastic.stochastic_settings import StepPlan, StochasticSettings, steps_between_draws
from bnnzoo.inference.optimise.schedules import Cyclical

__all__ = ["CyclicalSGMCMC"]


@dataclass(frozen=True, kw_only=True)
class CyclicalSGMCMC(StochasticSettings):
    r"""Cyclical SGLD: step sizes that fall from large to small again and again, to visit several modes with each chain.

    In cycles of L steps the step size is :math:`\tfrac{\epsilon_0}{2} (1 + \cos(\pi k / L))` at step k. During the first part of
    a cycle, ``exploration``, steps are large and add no noise: the chain ascends to a mode. The rest are steps of
    :class:`SGLD`, and all draws come from there. Draws are weighted equally, whatever the mass of their mode.

    Parameters
    ----------
    preconditioning : {"diagonal"}, optional
        As for :class:`SGLD`.
    num_draws : int
        Draws of each chain from all cycles together, a multiple of ``num_cycles``.
    num_cycles : int
        Number of cycles.
    exploration : float
        Fraction of a cycle without noise and draws.
    step_size : float, optional
        Of the first step of a cycle. Default: such that half a cycle later, where the step size has fallen to a half, the
        variances of a Gaussian posterior would be too large by a quarter; draws come from smaller steps. Warm-up takes steps
        of a twentieth of this size.

    References
    ----------
    Zhang, Li, Zhang, Chen and Wilson (2020), Cyclical stochastic gradient MCMC for Bayesian deep learning, ICLR.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> method = bz.CyclicalSGMCMC(num_chains=2, num_warmup=30, num_draws=20, num_cycles=4, batch_size=10)
    >>> posterior = bz.fit(target.model, method, *target.data)
    >>> posterior.draws().shape
    torch.Size([2, 20, 3])
    """

    num_cycles: Count = 20
    exploration: Fraction = 0.5
    preconditioning: Literal["diagonal"] | None = "diagonal"

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior around the modes that the cycles find; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If the number of draws is not a multiple of the number of cycles.
        """
        if self.num_draws % self.num_cycles:
            raise ValueError(
                f"CyclicalSGMCMC(num_draws={self.num_draws}, num_cycles={self.num_cycles}): each cycle has the same number of "
                f"draws. Write num_draws={self.num_cycles * math.ceil(self.num_draws / self.num_cycles)}."
            )
        dynamics = Langevin(self.temperature, LARGEST_BIAS, self.preconditioning is not None)
        return sample_stochastic(self, dynamics, cycles_of(self, density), density, context)


LARGEST_BIAS = 0.5
"""Relative bias of variances at the largest step of a cycle, were it kept."""

FACTOR_OF_WARMUP = 0.05
"""Warm-up takes the steps of SGLD at its default bias."""


def cycles_of(method: CyclicalSGMCMC, density: LogDensity) -> StepPlan:
    """Return the steps of each draw, the first of a cycle with those of the exploration before it, and their sizes."""
    thinning, num_draws = steps_between_draws(method, density), method.num_draws // method.num_cycles
    exploring = round(thinning * num_draws * method.exploration / (1 - method.exploration))
    cycle = (exploring + thinning, *[thinning] * (num_draws - 1))
    total = method.num_cycles * sum(cycle)
    place = torch.arange(total) % sum(cycle)
    factors, noise = Cyclical(method.num_cycles).factors(total), (place >= exploring) * 1.0
    return StepPlan(thinning, cycle * method.num_cycles, factors, noise, FACTOR_OF_WARMUP, method.num_cycles)
