"""Chains of microcanonical Langevin dynamics: nothing is rejected, so that every step counts, and a small bias remains."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.mixing import autocorrelation_time
from bnnzoo.core.settings import Count, Positive
from bnnzoo.engine.choose import NATIVE_PAYS_FROM, Engine
from bnnzoo.inference.markov.chain_settings import AdaptiveSettings
from bnnzoo.inference.markov.hamiltonian.kernel import Metric
from bnnzoo.inference.markov.lockstep.lockstep_chains import LockstepChains, groups_of_chains
from bnnzoo.inference.markov.lockstep.motions import Common, LangevinMotion

__all__ = ["LangevinChains", "LangevinSampler", "LangevinSettings"]

MOTION = LangevinMotion()
MAX_SEARCH = 30
STEPS_OF_WARMUP = 32
ERROR_DISCOUNT, OUTLIER, MAX_COORDINATES = 0.9, 8.0, 128
SCALES_UNTIL = 0.65
"""Fraction of warm-up after which scales are fixed, so that the autocorrelation is that of the chains to come."""

HISTORY, SHORT_HISTORY, FEWEST_OF_HISTORY = 0.25, 0.1, 64
"""Parts of warm-up, its last, from which the autocorrelation is estimated, the second of chains whose scales had converged; and
the fewest draws that tell it.

Networks do not converge in this sense, and their autocorrelation takes the longer one. On seventeen other posteriors effective
draws a gradient are the same with either, and 1.4 times as many with warm-up.
"""

MAX_STEPS_PER_DRAW = 1000
"""Bound on the default number of steps between draws: with scales from too few draws and tiny steps, one could take hours."""

SMALLEST = 1e-300  # by which an error is divided: the sixth power of a tiny step may underflow

DECOHERENCE = 0.4
"""The direction decoheres over this many autocorrelation times, which Robnik et al. (2023) found best."""


@dataclass(frozen=True, kw_only=True)
class LangevinSettings(AdaptiveSettings):
    """Settings of microcanonical Langevin dynamics, whose chains adapt together and reject nothing.

    Parameters
    ----------
    num_groups : int
        As for :class:`bnnzoo.MAMS`.
    """

    native_pays_from: ClassVar[float] = NATIVE_PAYS_FROM

    steps_per_draw: Count | None = None
    energy_variance: Positive = 5e-4
    decoherence_length: Positive | None = None
    num_groups: Count = 1


class Discounted(NamedTuple):
    """A discounted sum, and that of its weights."""

    total: float
    weight: float


NO_ERROR_YET = Discounted(0.0, 0.0)


class LangevinTuning(NamedTuple):
    """What the chains learn besides step size and scales.

    Attributes
    ----------
    length : float
        Decoherence length.
    steps_per_draw : int
    error : Discounted
        Energy errors divided by the sixth power of the step size.
    history : Tensor
        Some coordinates of the last draws of warm-up ``[C, S, D]``.
    """

    length: float
    steps_per_draw: int
    error: Discounted
    history: Tensor


class LangevinChains(LockstepChains[LangevinTuning]):
    """Chains of microcanonical Langevin dynamics.

    A chain that comes to a point at which the log density cannot be computed returns to its last draw.

    Parameters
    ----------
    density, settings, theta, seed, first_chain, engine, root
        As in :class:`bnnzoo.inference.markov.lockstep.lockstep_chains.LockstepChains`.
    """

    def __init__(
        self,
        density: LogDensity,
        settings: LangevinSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
        engine: Engine = "auto",
        root: Tensor | Metric | None = None,
    ) -> None:
        until = int(SCALES_UNTIL * settings.num_warmup)
        super().__init__(MOTION, density, settings, theta, seed, first_chain, engine, root, until)
        self.settings = settings
        self._coordinates = (
            torch.linspace(0, self.num_params - 1, min(self.num_params, MAX_COORDINATES)).long().to(theta.device)
        )
        history = theta.new_zeros(self.num_chains, int(HISTORY * settings.num_warmup), len(self._coordinates))
        length = settings.decoherence_length or math.sqrt(self.num_params)
        self.tuning = LangevinTuning(length, settings.steps_per_draw or 1, NO_ERROR_YET, history)
        if settings.step_size is None:
            self._search_step_size()
        self._tell()

    @property
    def energy_error(self) -> float:
        """Mean squared energy change of the latest draws, per step and parameter; NaN if none is finite."""
        errors = self._statistic("energy_error")
        return float(errors[errors.isfinite()].mean())

    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        return {"energy error": self.energy_error, "step size": self.step_size}

    @property
    def _num_last(self) -> int:
        return max(int(SHORT_HISTORY * self._num_warmup), FEWEST_OF_HISTORY)

    def _tuned_numbers(self) -> dict[str, float]:
        return {"decoherence_length": self.tuning.length, "steps_per_draw": self.tuning.steps_per_draw}

    def _adopt_numbers(self, numbers: Mapping[str, float]) -> None:
        steps = self.settings.steps_per_draw or round(numbers["steps_per_draw"])
        length = self.settings.decoherence_length or numbers["decoherence_length"]
        self.tuning = self.tuning._replace(length=length, steps_per_draw=steps)

    def _common(self) -> Common:
        """Return what the chains share; noise has the strength ``nu = sqrt((exp(2 t / L) - 1) / P)`` in steps of length t."""
        nu = math.sqrt(math.expm1(2 * self.step_size / self.tuning.length) / self.num_params)
        warm = int(self.fleet.resting.counters.draws[0]) < self._num_warmup
        return self._shared(nu=nu, steps=STEPS_OF_WARMUP if warm else self.tuning.steps_per_draw)

    def _learn(self, draw: int) -> None:
        """Update step size, moments and history from the last steps; if they failed in all chains, the step is shortened."""
        resting, tuning, error = self.fleet.resting, self.tuning, self.energy_error
        if not math.isfinite(error) or not bool(resting.drawn.gradient.isfinite().all()):
            self.step_size, self.tuning = 0.5 * self.step_size, tuning._replace(error=NO_ERROR_YET)
            self._tell(drawn=resting.start)
            return
        self.tuning = tuning._replace(error=_updated(tuning.error, error / max(self.step_size**6, SMALLEST)))
        if self.settings.step_size is None:
            # the step size at which the errors seen so far would have been the one wanted
            if self.tuning.error.total > 0:
                self.step_size = (
                    self.settings.energy_variance * self.tuning.error.weight / self.tuning.error.total
                ) ** (1 / 6)
            else:
                self.step_size = 2 * self.step_size
        self._observe(draw)
        place = draw - (self._num_warmup - tuning.history.shape[1])
        if place >= 0:
            tuning.history[:, place] = resting.drawn.theta[:, self._coordinates]

    def _rescale(self, growth: float, first: bool) -> None:
        """Rescale the step size, of scales alone after the first window, and forget the energy errors of earlier steps."""
        if self.settings.step_size is None and (first or self.shared.mass_matrix != "diagonal"):
            self.step_size *= growth
        self.tuning = self.tuning._replace(error=NO_ERROR_YET)

    def _stop_learning(self) -> None:
        """Set the decoherence length from the autocorrelation of the last draws of warm-up, and how often draws are kept."""
        history = self.tuning.history
        if self._skipped:
            history = history[:, -self._num_last :]
        if self.settings.decoherence_length is None and history.shape[1] >= FEWEST_OF_HISTORY:
            length = DECOHERENCE * STEPS_OF_WARMUP * self.step_size * float(autocorrelation_time(history).mean())
            self.tuning = self.tuning._replace(length=length)
        if self.settings.steps_per_draw is None:
            steps = min(max(1.0, self.tuning.length / self.step_size), MAX_STEPS_PER_DRAW)
            self.tuning = self.tuning._replace(steps_per_draw=round(steps))

    def _search_step_size(self) -> None:
        """Change the step by a factor of at most four at a time until its energy error is about the one wanted."""
        wanted, start = self.settings.energy_variance, self.fleet.resting.drawn
        for _ in range(MAX_SEARCH):
            squares = self._moved(start, self._common()).squares
            error = float((squares / self.num_params).mean())
            # errors grow with the sixth power of the step
            factor = min(max((wanted / error) ** (1 / 6), 0.25), 4.0) if error > 0 else 4.0
            if not math.isfinite(error):
                factor = 0.25
            self.step_size *= factor
            if 0.8 < factor < 1.25:
                return


def _updated(seen: Discounted, new: float) -> Discounted:
    """Add the latest energy error, divided by the sixth power of the step size, by which it grows, to the discounted sum.

    A single wild step must not stop the chain, so its error is bounded; and as chains descend to typical points, what earlier
    steps cost soon carries no information, so that it is dropped once errors are much smaller.
    """
    error, weight = seen
    if error > 0 and OUTLIER * new < error / weight:
        error = weight = 0.0
    new = min(new, OUTLIER * error / weight) if error > 0 else new
    return Discounted(ERROR_DISCOUNT * error + new, ERROR_DISCOUNT * weight + 1)


@dataclass(frozen=True)
class LangevinSampler:
    """What starts :class:`LangevinChains`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    settings: LangevinSettings
    root: Tensor | Metric | None = None
    engine: Engine = "auto"

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return the chains that adapt together, the same whether an executor runs them or not."""
        return groups_of_chains(self.settings, num_chains)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> LangevinChains:
        """Start chains at ``theta[C, P]``."""
        return LangevinChains(density, self.settings, theta, seed, first_chain, self.engine, self.root)
