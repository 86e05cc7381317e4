"""Microcanonical Langevin Monte Carlo on mini-batches, and ensembles of it (Sommer, Diao, Robnik, Seljak and Ruegamer 2026)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.settings import Positive
from bnnzoo.inference.markov.chain_settings import refuse_single_parameter
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical, Point, drift, second_half_kick
from bnnzoo.inference.markov.stochastic.gradients import Anchor
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured, Step
from bnnzoo.inference.markov.stochastic.stochastic_program import StochasticResting, StochasticState, Units
from bnnzoo.inference.markov.stochastic.stochastic_sampler import sample_stochastic
from bnnzoo.inference.markov.stochastic.stochastic_settings import StochasticSettings, plan_of, rows_of_batch
from bnnzoo.inference.markov.stochastic.tuning import Tuning

__all__ = ["MicrocanonicalLangevin", "StochasticMCLMC"]

DYNAMICS = Microcanonical()
FIRST_STEP = 0.1
"""First step size in units of the square root of the number of parameters, before energies are known."""

MEMORY, LARGEST_CHANGE, REMEMBERED = 0.97, 2.0, 20.0
"""How slowly energy errors are forgotten, by how much a draw can change the step size, and how many errors in old units count.

Squared energy errors have heavy tails, and the step goes by the inverse of their mean: a mean of few is too small more often than
not, and a step too long by a quarter has four times the error.
"""


@dataclass(frozen=True)
class MicrocanonicalLangevin:
    r"""Microcanonical dynamics along stochastic gradients, whose noise refreshes the direction u, :math:`|u| = 1`.

    .. math::
        u &\leftarrow K_{h/2}(u, S \tilde g / T), & u &\leftarrow \frac{u + \nu \xi}{|u + \nu \xi|}, \quad
        \nu^2 = \frac{e^{2 h / L} - 1}{P}, \\
        u &\leftarrow K_{h/2}(u, S \tilde g / T), & \theta &\leftarrow \theta + h S u,

    where :math:`K_t(u, f)` turns u by a constant force for a time t; see
    :class:`bnnzoo.inference.markov.lockstep.dynamics.Microcanonical`. Noise that is isotropic in the units S moves u as the
    refreshment does and leaves the target invariant, however large; noise that is not heats some directions more than others.

    Parameters
    ----------
    temperature : float
    preconditioned : bool
        Whether S is estimated; it is the identity otherwise.
    decoherence_length : float
        L, in units of S.
    """

    temperature: float
    preconditioned: bool
    decoherence_length: float
    counts_noise: bool = True

    def start(self, measured: Measured, noise: Tensor) -> tuple[Tensor, ...]:
        """Return a direction ``[C, P]`` for each chain."""
        return (vmap(DYNAMICS.refresh)(noise),)

    def reversed(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the opposite direction ``[P]``."""
        (direction,) = state
        return (-direction,)

    def step_size(self, measured: Measured) -> Tensor:
        """Return the step size ``[C]`` with which the tuning begins."""
        num_params = measured.scale.shape[1]
        roughness = (measured.scale**2 * measured.curvature).mean(1)
        return FIRST_STEP * (num_params / torch.maximum(roughness, measured.stiffness)).sqrt()

    def move(
        self, gradient: Tensor, state: tuple[Tensor, ...], step: Step, noise: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the move, and the direction."""
        (direction,), force = state, step.scale * gradient / self.temperature
        nu = ((2 * step.size / self.decoherence_length).exp() - 1).div(len(gradient)).sqrt()
        direction, _ = DYNAMICS.kick(direction, force, 0.5 * step.size)
        direction = DYNAMICS.refresh(direction + step.noisy * nu * noise)
        direction, _ = DYNAMICS.kick(direction, force, 0.5 * step.size)
        return step.size * step.scale * direction, (direction,)


class MicrocanonicalTuning(Tuning):
    """Step sizes tuned to an energy error after each draw of warm-up.

    Parameters
    ----------
    dynamics, settings, target
        As in :class:`bnnzoo.inference.markov.stochastic.tuning.Tuning`.
    """

    settings: "StochasticMCLMC"
    dynamics: MicrocanonicalLangevin

    @property
    def pauses(self) -> Iterable[int]:
        """Numbers of draws after which there is something to learn: all of warm-up."""
        return range(1, self.settings.num_warmup + 1)

    def retuned(
        self, theta: Tensor, anchor: Anchor, units: Units, curvature: Tensor, noise: Tensor
    ) -> tuple[Measured, Units]:
        """Set scales, and go on to tune step sizes in the new units; what earlier steps told then counts for a few only."""
        found, new = super().retuned(theta, anchor, units, curvature, noise)
        nothing = torch.zeros_like(new.step_size)
        error, weight = self.memory or (nothing, nothing)
        growth = (new.scale / units.scale).log().mean(1).exp()
        known = weight > 0
        share = torch.where(known, weight.clamp(max=REMEMBERED) / weight.clamp(min=1e-6), 0.0)
        self.memory = share * error * growth**6, share * weight
        return found, new._replace(step_size=torch.where(known, units.step_size / growth, new.step_size))

    def learnt(
        self, moving: StochasticState, resting: StochasticResting, draws: int
    ) -> tuple[StochasticState, StochasticResting]:
        """Move each step size towards the energy error that is wanted, which grows with its sixth power."""
        moving, resting = super().learnt(moving, resting, draws)
        if self.settings.step_size is not None:
            return moving, resting
        (error, weight), size = self.memory, resting.units.step_size
        latest = self.energy_error(moving, resting.units) / size**6
        usable = latest.isfinite() & (latest > 0)
        error = torch.where(usable, MEMORY * error + latest, error)
        weight = torch.where(usable, MEMORY * weight + 1, weight)
        wanted = (self.settings.energy_variance * weight / error).pow(1 / 6)
        wanted = torch.where(usable, wanted.clamp(size / LARGEST_CHANGE, size * LARGEST_CHANGE), size)
        self.memory = error, weight
        units = resting.units._replace(step_size=wanted.minimum(self._longest_step(resting.units)))
        return moving, resting._replace(units=units)

    def _longest_step(self, units: Units) -> Tensor:
        """Return the longest step size ``[C]`` that ``noise_ratio`` allows.

        Over a distance L refreshments change it by 2 in mean square, and noise of variance V by ``h L S^2 V / P``.
        """
        variance = (units.scale**2 * units.gradient_noise).mean(1) / self.settings.temperature**2
        return 2 * self.settings.noise_ratio * units.scale.shape[1] / (self.dynamics.decoherence_length * variance)

    def energy_error(self, moving: StochasticState, units: Units) -> Tensor:
        """Return the squared energy change per parameter ``[C]`` of one step on one batch, from where the chains are.

        Both ends of the step see the density of the same batch, so that the error is that of the integrator: the difference of
        two batches would drown it.
        """
        batch, temperature = self.target.value_and_grad_on_a_batch(()), self.settings.temperature

        def tempered(place: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = batch(place)
            return value / temperature, gradient / temperature

        value, gradient = tempered(moving.theta)
        start = Point(moving.theta, moving.carried[0], gradient, value, torch.zeros_like(value))
        moved = vmap(lambda p, s, t: drift(DYNAMICS, p, s, t))(start, units.scale, units.step_size)
        value, gradient = tempered(moved.theta)
        step = units.scale, units.step_size
        end = vmap(lambda p, v, g, s, t: second_half_kick(DYNAMICS, p, v, g, s, t))(moved, value, gradient, *step)
        self.count(2)
        return (end.work - (end.log_density - start.log_density)).square() / units.scale.shape[1]


@dataclass(frozen=True, kw_only=True)
class StochasticMCLMC(StochasticSettings):
    """Microcanonical Langevin Monte Carlo on mini-batches, from optimised members: a stochastic microcanonical ensemble.

    A chain has constant speed, and gradients only change its direction. The noise of mini-batch gradients changes it, too; if it
    is the same in all directions it leaves the posterior invariant, however large it is, where it heats the chains of
    :class:`SGLD` and :class:`SGHMC`. Preconditioning makes it nearly so.

    A diagonal preconditioner cannot make correlated noise isotropic, so that a bias remains which grows with the share that noise
    has in the changes of direction, ``noise_ratio``.

    Each chain starts at a member trained on mini-batches (``optimise_steps``), so that together they are an ensemble in which
    each member has been replaced by draws around it.

    Parameters
    ----------
    step_size : float, optional
        Default: tuned to ``energy_variance``, and no longer than ``noise_ratio`` allows.
    preconditioning : {"diagonal"}, optional
        Whether parameters are measured in units in which the noise of their gradients has the same variance, estimated during
        warm-up from the squared gradients of mini-batches. None: in the units of the model.
    energy_variance : float
        Mean squared energy change of a step, per parameter, to which the step size is tuned; both ends of a step are evaluated on
        the same batch.
    noise_ratio : float
        How much gradient noise may change the direction, relative to refreshments: smaller values are slower and less biased.
    decoherence_length : float, optional
        Distance over which refreshments, without the noise of gradients, change the direction, in the units of the
        parameters. Default: ``sqrt(P N / B)``, the width of the posterior in the estimated units; without preconditioning give
        one in the units of the model.

    Notes
    -----
    The dynamics, the preconditioning by gradient noise and the ensemble of optimised members follow the paper. Three things
    differ from the authors' program: scales are fixed after warm-up, and come from mean squares in place of variances of
    gradients, so that they exist without noise, too; the energy error that tunes the step is that of one batch and has a fixed
    target, where theirs compares quantiles of its own distribution across batches; directions are refreshed besides, and
    ``noise_ratio`` bounds the step; a leapfrog step takes one gradient, where theirs takes two. Steps with outlying energy are
    not rejected.

    References
    ----------
    Sommer, Diao, Robnik, Seljak and Ruegamer (2026), Can microcanonical Langevin dynamics leverage mini-batch gradient noise?,
    ICML, arXiv:2602.06500. Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR 24.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> method = bz.StochasticMCLMC(num_chains=2, num_warmup=30, num_draws=20, batch_size=10)
    >>> posterior = bz.fit(target.model, method, *target.data)
    >>> posterior.draws().shape
    torch.Size([2, 20, 3])
    """

    preconditioning: Literal["diagonal"] | None = "diagonal"
    energy_variance: Positive = 5e-4
    noise_ratio: Positive = 0.25
    decoherence_length: Positive | None = None

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior, up to a small bias; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If the model has a single parameter: a direction needs two.
        """
        refuse_single_parameter("StochasticMCLMC", density)
        batches = max(1.0, density.num_data / rows_of_batch(self, density))
        length = self.decoherence_length or math.sqrt(density.num_params * batches)
        dynamics = MicrocanonicalLangevin(self.temperature, self.preconditioning is not None, length)
        return sample_stochastic(self, dynamics, plan_of(self, density), density, context, MicrocanonicalTuning)
