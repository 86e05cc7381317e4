"""Chains in lockstep that take trajectories of the same number of steps, so that no tree is needed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.choose import Engine
from bnnzoo.inference.markov.adaptation import (
    FEWEST_IN_WINDOW,
    HIGHEST_TARGET,
    NEAR,
    StepSize,
    initial_step_size,
    restart_step_size,
    retuned_step_size,
    search_step_size,
    settle_step_size,
    settling_from,
    update_step_size,
)
from bnnzoo.inference.markov.chain_settings import LockstepSettings
from bnnzoo.inference.markov.hamiltonian.kernel import Metric
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics
from bnnzoo.inference.markov.lockstep.lockstep_chains import LockstepChains, groups_of_chains
from bnnzoo.inference.markov.lockstep.motions import Common, Trajectories, metropolis
from bnnzoo.inference.markov.lockstep.shared_metric import FEWEST_CHAINS
from bnnzoo.inference.markov.trajectory_length import Jump, Length, initial_length, update_length

__all__ = ["AcceptanceTarget", "TrajectoryChains", "TrajectorySampler", "TrajectoryTuning", "raised"]

FIRST_NUM_STEPS, EARLY_MAX_STEPS = 8, 256
MIN_ACCEPTANCE, MIN_WEIGHT = 1e-2, 0.02
FEWEST_AVERAGED = 15
"""Draws after a restart of dual averaging before its average is near enough to settle: it begins at ten times the step."""

NUM_LAST = 50
"""Draws in which the step size of several chains settles that have converged, whose posterior is close to Gaussian.

With 150 of them, and 300 before, as chains have that learn alone, warm-up took 40% of the gradients of ``MAMS`` in the median of
seventeen posteriors, with these 23%; an effective draw takes as many. Chains that do not converge need the 150: with 50 a centred
hierarchy, an AR(2) process and a Gaussian process with counts had a tenth to a third of the effective draws.
"""

MAX_UNLIKELY, FEWEST_TRAJECTORIES, USUAL = 0.005, 1000, 1.5
"""Share of the trajectories of a window whose acceptance may be below ``MIN_ACCEPTANCE`` before the target rises, the fewest to
judge by, and the factor within which their steps are of the average one.

Of 97 models the share is 0.3% at most where posteriors are close to Gaussian, and 0.5 to 2% where chains in lockstep had
divergences: networks, splines and hierarchies. It is seen late, often in the last window, so that the target rises by much: of 73
fits of the zoo 30 had divergences, 20 where it went half of the way to 1, and 12 where it goes two thirds.
"""

SHORTEST = 0.5
"""Smallest mean length of a trajectory in quarter periods of a standard normal, once scales are known."""


class AcceptanceTarget(NamedTuple):
    """Acceptance at which chains aim, and numbers of trajectories in the open window: judged, and unlikely to be accepted."""

    accept: float
    num_judged: int = 0
    num_unlikely: int = 0


class TrajectoryTuning(NamedTuple):
    """What chains learn besides step size and scales: mean ``[C, P]``, trajectory length, and what acceptance to aim at."""

    mean: Tensor
    tuner: StepSize
    length: Length
    target: AcceptanceTarget


class TrajectoryChains(LockstepChains[TrajectoryTuning]):
    """Chains of one kind of dynamics whose trajectories end in a Metropolis step.

    Parameters
    ----------
    dynamics : Dynamics
    jump : Jump
        Measure of distance that the trajectory length maximises.
    density, settings, theta, seed, first_chain, engine, root
        As in :class:`bnnzoo.inference.markov.lockstep.lockstep_chains.LockstepChains`.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        jump: Jump,
        density: LogDensity,
        settings: LockstepSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
        engine: Engine = "auto",
        root: Tensor | Metric | None = None,
    ) -> None:
        self.dynamics, self.settings, self._jump = dynamics, settings, jump
        super().__init__(Trajectories(dynamics), density, settings, theta, seed, first_chain, engine, root)
        if settings.step_size is None:
            self.step_size = float(search_step_size(self._acceptance, theta.new_tensor(self.step_size)))
        first = FIRST_NUM_STEPS * self.step_size if root is None else dynamics.quarter_period(self.num_params)
        length = initial_length(settings.trajectory_length or first)
        tuner, target = initial_step_size(theta.new_tensor(self.step_size)), AcceptanceTarget(settings.target_accept)
        self.tuning = TrajectoryTuning(theta.clone(), tuner, length, target)
        self._tell()

    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        rate, steps = float(self._statistic("acceptance_rate").mean()), self.tuning.length.value / self.step_size
        return {"acceptance": rate, "step size": self.step_size, "steps": steps}

    @property
    def _num_last(self) -> int:
        return NUM_LAST if self.num_chains >= FEWEST_CHAINS else self._num_warmup

    @property
    def _last_end(self) -> int:
        """Draw of warm-up with which its last window ends, or chains go on after that."""
        return self._goes_on if self._skipped else max(self.shared.ends, default=0)

    def _tuned_numbers(self) -> dict[str, float]:
        return {"trajectory_length": self.tuning.length.value, "target_accept": self.tuning.target.accept}

    def _adopt_numbers(self, numbers: Mapping[str, float]) -> None:
        self.tuning = self.tuning._replace(
            target=AcceptanceTarget(numbers.get("target_accept", self.settings.target_accept))
        )
        if self.settings.trajectory_length is None:
            self.tuning = self.tuning._replace(length=initial_length(numbers["trajectory_length"]))

    def _common(self) -> Common:
        draws = int(self.fleet.resting.counters.draws[0])
        return self._shared(length=self.tuning.length.value, steps=self._max_steps(draws))

    def _acceptance(self, step_size: Tensor) -> Tensor:
        """Return the mean acceptance probability ``[]`` of one step with momenta of the dynamics."""
        self.step_size, start = float(step_size), self.fleet.resting.drawn
        end = self._moved(start, self._shared(steps=1)).point
        return vmap(metropolis)(start, end, torch.ones_like(end.work))[2].mean()

    def _scaled(self, draw: int) -> bool:
        """Tell whether positions are measured in units of estimated scales at a draw."""
        return draw >= self.shared.known_at

    def _max_steps(self, draw: int) -> int:
        """Bound trajectories further while scales are unknown: the widest direction takes too many of the narrowest's steps."""
        known = self._scaled(draw) or not self.shared.ends or self.settings.trajectory_length is not None
        return self.settings.max_steps if known else min(self.settings.max_steps, EARLY_MAX_STEPS)

    def _learn(self, draw: int) -> None:
        """Update step size, length, mean and moments from the latest trajectories."""
        moving, resting = self.fleet.moving, self.fleet.resting
        (mean, tuner, length, target), start, end = self.tuning, resting.start, moving.state.point
        acceptance = self._statistic("acceptance_rate").to(end.theta.dtype)
        if self.settings.trajectory_length is None:
            jumped, slope = self._jump(start, end, mean, acceptance, self.shared.units)
            time = int(moving.num_steps[0] - resting.counters.begins[0]) * self.step_size
            # the interval of mean lengths over which to tune
            shortest = SHORTEST * self.dynamics.quarter_period(self.num_params) if self._scaled(draw) else 0.0
            length = update_length(
                length,
                float(jumped.mean()),
                float(slope.mean()),
                time,
                (shortest, 0.5 * self._max_steps(draw) * self.step_size),
            )
        harmonic = 1 / (1 / acceptance.clamp(min=MIN_ACCEPTANCE)).mean()
        # the draw at which the average of the step size settles; a short warm-up ends before it
        settles = draw >= max(settling_from(self._num_warmup, fewest=0), self._last_end + FEWEST_AVERAGED)
        strays = abs(math.log(self.step_size) - float(tuner.log_average))  # steps that dual averaging tries tell little
        if float(tuner.count) >= FEWEST_AVERAGED and strays < math.log(USUAL):
            unlikely = target.num_unlikely + int((acceptance < MIN_ACCEPTANCE).sum())
            target = target._replace(num_judged=target.num_judged + len(acceptance), num_unlikely=unlikely)
        wanted = target.accept
        # one chain that stands still shortens the step of all by itself: no more caution is needed
        tuner = settle_step_size(tuner, harmonic, wanted, 0.0) if settles else update_step_size(tuner, harmonic, wanted)
        weight = max(1 / (draw + 1), MIN_WEIGHT)
        mean = (1 - weight) * mean + weight * resting.drawn.theta
        if not float(tuner.log_step.exp()) > torch.finfo(mean.dtype).tiny:
            dtype = acceptance.dtype
            wider = (
                "" if dtype is torch.float64 else f"fit in double precision with dtype=torch.float64 (now {dtype}), "
            )
            raise FloatingPointError(
                f"Chain {int(acceptance.argmin())} accepts no step, however short, at draw {draw} of warm-up: where it is, the "
                f"log density is lost in rounding error. Write a narrower prior, {wider}or use NUTS(), whose chains have steps "
                f"of their own."
            )
        self.step_size = float((tuner.log_average if settles else tuner.log_step).exp())
        self.tuning = TrajectoryTuning(mean, tuner, length, target)
        self._observe(draw)

    def _rescale(self, growth: float, first: bool) -> None:
        """Restart the tuning of the step size and, after the first window, of the length; aim higher where that is needed."""
        tuner, change = self.tuning.tuner, self.tuning.tuner.log_step.new_tensor(growth)
        if self.shared.mass_matrix == "diagonal":
            tuner = retuned_step_size(tuner, change, first)
        else:
            tuner = restart_step_size(tuner, change, NEAR)
        target = self.tuning.target
        if self.dynamics.diverges:
            target = raised(target, self.num_chains)
        self.step_size, self.tuning = float(tuner.log_step.exp()), self.tuning._replace(tuner=tuner, target=target)
        if first and self.settings.trajectory_length is None:  # lengths in the old units carry little information
            length = initial_length(self.dynamics.quarter_period(self.num_params))
            self.tuning = self.tuning._replace(length=length)

    def _stop_learning(self) -> None:
        """Switch to the averages of what was tuned."""
        self.step_size = float(self.tuning.tuner.log_average.exp())
        if self.settings.trajectory_length is None:
            self.tuning = self.tuning._replace(length=self.tuning.length.averaged())


def raised(target: AcceptanceTarget, num_chains: int) -> AcceptanceTarget:
    """Return what to aim at in the next window: higher if too many trajectories of the last one were unlikely to be accepted.

    They meet regions of high curvature, in which steps that suit the rest of the posterior are too long.
    """
    is_known = target.num_judged >= max(FEWEST_TRAJECTORIES, FEWEST_IN_WINDOW * num_chains)
    if not is_known or target.num_unlikely <= MAX_UNLIKELY * target.num_judged:
        return AcceptanceTarget(target.accept)
    return AcceptanceTarget(max(target.accept, min((2 + target.accept) / 3, HIGHEST_TARGET)))


@dataclass(frozen=True)
class TrajectorySampler:
    """What starts :class:`TrajectoryChains`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    dynamics: Dynamics
    jump: Jump
    settings: LockstepSettings
    root: Tensor | Metric | None = None
    engine: Engine = "auto"

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return the chains that adapt together, the same whether an executor runs them or not."""
        return groups_of_chains(self.settings, num_chains)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> TrajectoryChains:
        """Start chains at ``theta[C, P]``."""
        how = self.settings, theta, seed, first_chain, self.engine, self.root
        return TrajectoryChains(self.dynamics, self.jump, density, *how)
