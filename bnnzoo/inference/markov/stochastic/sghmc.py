"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014), by a splitting integrator."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.settings import Fraction
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured, Step
from bnnzoo.inference.markov.stochastic.stochastic_sampler import sample_stochastic
from bnnzoo.inference.markov.stochastic.stochastic_settings import GradientSettings, plan_of

__all__ = ["SGHMC", "UnderdampedLangevin"]

LONGEST_STEP = 0.5
"""Longest default step, in units of the standard deviation along the stiffest direction; steps of 2 are unstable."""

LARGEST_CORRECTION = 0.5
"""With the correction for gradient noise, the part of the thermal noise that it may replace at the default step size."""


@dataclass(frozen=True)
class UnderdampedLangevin:
    r"""Langevin dynamics with momentum, by the splitting BAOAB whose two half kicks with one gradient are joined.

    .. math::
        p &\leftarrow p + h S \tilde g(\theta), & \theta &\leftarrow \theta + \tfrac{h}{2} S p, \\
        p &\leftarrow c \, p + \sqrt{(1 - c^2) T - c^2 h^2 S^2 \hat V} \, \xi, & \theta &\leftarrow \theta + \tfrac{h}{2} S p,

    with :math:`c = 1 - \alpha`, scales S and step size h. :math:`\hat V` is an estimate of the variance of the gradient noise,
    or zero. With exact gradients the positions have the variance of a Gaussian posterior at any stable step size.

    Parameters
    ----------
    temperature, variance_bias : float
        As for SGLD.
    preconditioned : bool
        Whether S is estimated; it is the identity otherwise.
    decay : float
        Fraction alpha of the momentum that is lost in a step.
    counts_noise : bool
        Whether the thermal noise makes room for that of the gradient.

    References
    ----------
    Leimkuhler and Matthews (2013), Rational construction of stochastic numerical methods for molecular sampling, Applied
    Mathematics Research eXpress.
    """

    temperature: float
    variance_bias: float
    preconditioned: bool
    decay: float
    counts_noise: bool

    def start(self, measured: Measured, noise: Tensor) -> tuple[Tensor, ...]:
        """Return the momentum ``[C, P]`` from its stationary distribution."""
        return (self.temperature**0.5 * noise,)

    def reversed(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return minus the momentum ``[P]``: otherwise it would lead to the same place again."""
        (momentum,) = state
        return (-momentum,)

    def step_size(self, measured: Measured) -> Tensor:
        r"""Return the step size ``[C]`` at which gradient noise of variance V heats the chain by ``variance_bias``, at most.

        A step adds :math:`h^2 S^2 V` to the variance of the momentum and loses the part :math:`1 - c^2` of it.
        """
        lost = 1 - (1 - self.decay) ** 2
        allowed = LARGEST_CORRECTION if self.counts_noise else self.variance_bias
        heat = (measured.scale**2 * measured.noise).amax(1)
        longest = LONGEST_STEP / measured.stiffness.sqrt()
        return (allowed * lost / heat).sqrt().minimum(longest)

    def move(
        self, gradient: Tensor, state: tuple[Tensor, ...], step: Step, noise: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the move, and the momentum."""
        (momentum,), kept = state, 1 - self.decay
        kicked = momentum + step.size * step.scale * gradient
        known = step.gradient_noise if self.counts_noise else torch.zeros_like(gradient)
        thermal = (1 - kept**2) * self.temperature - (kept * step.size * step.scale) ** 2 * known
        after = kept * kicked + step.noisy * thermal.clamp(min=0.0).sqrt() * noise
        return 0.5 * step.size * step.scale * (kicked + after), (after,)


@dataclass(frozen=True, kw_only=True)
class SGHMC(GradientSettings):
    """Stochastic gradient Hamiltonian Monte Carlo: Langevin dynamics with momentum on mini-batches.

    Momentum averages the noise of gradients, and friction takes away the heat that this noise adds. Nothing is rejected. With
    exact gradients the integrator has no bias on Gaussian posteriors; gradient noise makes variances too large, in proportion to
    the squared step size. The default step size keeps this bias at ``variance_bias``.

    Parameters
    ----------
    preconditioning : {"diagonal"}, optional
        As for :class:`SGLD`.
    momentum_decay : float
        Fraction of the momentum that is lost in a step; one minus it is what optimisers call the momentum.
    noise_correction : bool
        Reduce the noise that is added by an estimate of the gradient's own, made during warm-up (the estimate B-hat of the
        paper, diagonal here). Steps can then be several times as long. The draws depend on the estimate being right: it is not
        the default.

    References
    ----------
    Chen, Fox and Guestrin (2014), Stochastic gradient Hamiltonian Monte Carlo, ICML. Leimkuhler and Matthews (2013), Rational
    construction of stochastic numerical methods for molecular sampling, Applied Mathematics Research eXpress.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> method = bz.SGHMC(num_chains=2, num_warmup=30, num_draws=20, batch_size=10)
    >>> posterior = bz.fit(target.model, method, *target.data)
    >>> posterior.draws().shape
    torch.Size([2, 20, 3])
    """

    preconditioning: Literal["diagonal"] | None = "diagonal"
    momentum_decay: Fraction = 0.1
    noise_correction: bool = False

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior, up to the bias of the step size; see :func:`bnnzoo.fit`."""
        dynamics = UnderdampedLangevin(
            self.temperature,
            self.variance_bias,
            self.preconditioning is not None,
            self.momentum_decay,
            self.noise_correction,
        )
        return sample_stochastic(self, dynamics, plan_of(self, density, self.schedule), density, context)
