"""The loop over chains in lockstep: all take trajectories of the same number of steps, so that no tree is needed.

Step size, scales and trajectory length are common to all chains and learnt from all of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.packed import Packed
from bnnzoo.inference.markov.adaptation import (
    StepSize,
    initial_step_size,
    retuned_step_size,
    search_step_size,
    settle_step_size,
    settling_from,
    update_step_size,
)
from bnnzoo.inference.markov.chain_settings import LockstepSettings
from bnnzoo.inference.markov.chains import ValueAndGrad
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics, Point, arrive, drift
from bnnzoo.inference.markov.lockstep.motions import Trajectories, metropolis, statistics
from bnnzoo.inference.markov.lockstep.native_chains import NativeMotion, native_motion
from bnnzoo.inference.markov.lockstep.synchronous import SynchronousLoop, groups_of_chains
from bnnzoo.inference.markov.trajectory_length import Jump, Length, initial_length, update_length

__all__ = ["LockstepLoop", "LockstepSampler", "MicrocanonicalLoop", "batched_step"]

GOLDEN_RATIO = 0.5 * (5**0.5 - 1)
FIRST_NUM_STEPS, EARLY_MAX_STEPS = 8, 256
MIN_ACCEPTANCE, MIN_WEIGHT = 1e-2, 0.02
FEWEST_AVERAGED = 15
"""Draws after a restart of dual averaging before its average is near enough to settle: it begins at ten times the step."""

SHORTEST = 0.5
"""Smallest mean length of a trajectory in quarter periods of a standard normal, once scales are known."""


class LockstepTuning(NamedTuple):
    """What chains in lockstep learn besides step size and scales: mean ``[C, P]`` and trajectory length."""

    mean: Tensor
    tuner: StepSize
    length: Length
    acceptance: float


def batched_step(dynamics: Dynamics, value_and_grad: ValueAndGrad) -> Callable[..., Packed]:
    """Return one splitting step of all chains, with the gradient in the middle; ``scale[P]`` and ``time[]`` are common."""

    def step(packed: Packed, scale: Tensor, time: Tensor, *data: Any) -> Packed:
        moved = vmap(lambda point: drift(dynamics, point, scale, time))(packed.value)
        value, gradient = value_and_grad(moved.theta, *data)
        return Packed(vmap(lambda p, v, g: arrive(dynamics, p, v, g, scale, time))(moved, value, gradient))

    return step


class LockstepLoop(SynchronousLoop[LockstepTuning]):
    """Chains of one kind of dynamics whose trajectories end in a Metropolis step.

    Parameters
    ----------
    dynamics : Dynamics
    jump : Jump
        Measure of distance that the trajectory length maximises.
    density, settings, theta, seed, first_chain, native, scale
        As in :class:`bnnzoo.inference.markov.lockstep.synchronous.SynchronousLoop`.
    """

    kind = "lockstep"
    stats_names = ("lp", "energy", "acceptance_rate", "n_steps", "diverging", "step_size")

    def __init__(
        self,
        dynamics: Dynamics,
        jump: Jump,
        density: LogDensity,
        settings: LockstepSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
        native: NativeMotion | None = None,
        scale: Tensor | None = None,
    ) -> None:
        super().__init__(density, settings, theta, seed, first_chain, native=native, scale=scale)
        self.dynamics, self.settings, self._jump = dynamics, settings, jump
        self._offset = float(np.random.default_rng(seed).random())
        if native is None:
            self.step = self._lowered(partial(batched_step, dynamics), self._layout, *self._common()[:2])
        if settings.step_size is None:
            accepted = partial(self._acceptance, self._refreshed())
            self.state = self.state._replace(step_size=search_step_size(accepted, self.state.step_size))
        tuner = initial_step_size(self.state.step_size)
        first = (
            FIRST_NUM_STEPS * float(self.state.step_size) if scale is None else dynamics.quarter_period(self.num_params)
        )
        length = initial_length(settings.trajectory_length or first)
        self.tuning = LockstepTuning(theta.clone(), tuner, length, acceptance=0.0)

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]``, scales ``[C, P]`` and mean length of trajectories ``[C]``, which chains have in common."""
        return self._shared(trajectory_length=self.tuning.length.value)

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Go on with the step size, scales and length found before."""
        self._adopt_units(tuning)
        if self.settings.trajectory_length is None:
            self.tuning = self.tuning._replace(length=initial_length(float(tuning["trajectory_length"][0])))

    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        size = float(self.state.step_size)
        return {"acceptance": self.tuning.acceptance, "step size": size, "steps": self.tuning.length.value / size}

    def _initial_momentum(self, theta: Tensor) -> Tensor:
        return torch.zeros_like(theta)

    def _refreshed(self) -> Point:
        """Return the current points with new momenta."""
        momentum = vmap(self.dynamics.refresh)(self.streams.normals(self.num_params))
        return self.state.point._replace(momentum=momentum, work=torch.zeros_like(self.state.point.work))

    def _draw(self, warm: bool) -> None:
        """Propose the end of a trajectory to every chain, then learn from it or keep the draws."""
        start, uniform = self._refreshed(), self.streams.uniforms()[0]
        num_steps = self._num_steps_at(self.state.iteration)
        end = self._travel(start, num_steps, self.state.step_size)
        point, error, acceptance = vmap(metropolis)(start, end, uniform)
        self.state = self.state._replace(point=point)
        self.tuning = self.tuning._replace(acceptance=float(acceptance.mean()))
        self._count_rejected(end)
        if warm:
            self._learn(start, end, acceptance, num_steps)
            return
        stats = vmap(partial(statistics, self.dynamics), in_dims=(0, 0, 0, 0, None, None))
        self._keep_all(stats(start, point, error, acceptance, torch.tensor(num_steps), self.state.step_size))

    def _travel(self, point: Point, num_steps: int, time: Tensor) -> Point:
        """Return where trajectories of ``num_steps`` steps end."""
        self.state = self.state._replace(num_leaps=self.state.num_leaps + num_steps)
        if self.native is not None:
            return self.native.travel(point, self._common()._replace(step_size=time), num_steps, self.streams).point
        assert self.step is not None
        groups: Any = Packed(point).groups
        with torch.no_grad():
            for _ in range(num_steps):
                groups = self.step(*groups, self.state.scale, time, *self._tensors)
        end: Point = self._layout.with_groups(groups).value
        return end

    def _show(self, stats: Tensor) -> None:
        self.tuning = self.tuning._replace(acceptance=float(stats[:, self.stats_names.index("acceptance_rate")].mean()))

    def _num_steps_at(self, iteration: int) -> int:
        """Return a number of steps: lengths are uniform on (0, 2 mean), so that no period of the posterior resonates."""
        fraction = 2 * ((self._offset + iteration * GOLDEN_RATIO) % 1.0)
        steps = math.ceil(fraction * self.tuning.length.value / float(self.state.step_size))
        return min(max(steps, 1), self._max_steps())

    @property
    def _scaled(self) -> bool:
        """Whether positions are measured in units of estimated scales."""
        return self._scaled_from_start or (bool(self._ends) and self.state.iteration >= self._ends[1])

    def _max_steps(self) -> int:
        """Bound trajectories further while scales are unknown: the widest direction takes too many of the narrowest's steps."""
        known = self._scaled or not self._ends or self.settings.trajectory_length is not None
        return self.settings.max_steps if known else min(self.settings.max_steps, EARLY_MAX_STEPS)

    def _learn(self, start: Point, end: Point, acceptance: Tensor, num_steps: int) -> None:
        """Update step size, length, mean and moments from the trajectories just travelled."""
        (mean, tuner, length, _), state = self.tuning, self.state
        if self.settings.trajectory_length is None:
            measure = vmap(self._jump, in_dims=(0, 0, 0, 0, None))
            jumped, slope = measure(start, end, mean, acceptance, state.scale)
            time = num_steps * float(state.step_size)
            length = update_length(length, float(jumped.mean()), float(slope.mean()), time, self._bounds())
        harmonic = 1 / (1 / acceptance.clamp(min=MIN_ACCEPTANCE)).mean()
        settles, target = state.iteration >= self._settles_from(), self.settings.target_accept
        # one chain that stands still shortens the step of all by itself: no more caution is needed
        tuner = settle_step_size(tuner, harmonic, target, 0.0) if settles else update_step_size(tuner, harmonic, target)
        weight = max(1 / (state.iteration + 1), MIN_WEIGHT)
        mean = (1 - weight) * mean + weight * state.point.theta
        if not float(tuner.log_step.exp()) > torch.finfo(state.point.theta.dtype).tiny:
            raise self._standstill(acceptance)
        self.state = state._replace(step_size=(tuner.log_average if settles else tuner.log_step).exp())
        self.tuning = self.tuning._replace(mean=mean, tuner=tuner, length=length)
        self._observe()

    def _standstill(self, acceptance: Tensor) -> FloatingPointError:
        """Return the error for chains one of which accepts no step, however short: its density is rounding error there."""
        dtype = self.state.point.theta.dtype
        wider = "" if dtype is torch.float64 else f"fit in double precision with dtype=torch.float64 (now {dtype}), "
        return FloatingPointError(
            f"Chain {int(acceptance.argmin())} accepts no step, however short, at draw {self.state.iteration} of warm-up: where "
            f"it is, the log density is lost in rounding error. Write a narrower prior, {wider}or use NUTS(), whose chains have "
            f"steps of their own."
        )

    def _settles_from(self) -> int:
        """Return the draw at which the average of the step size settles; a short warm-up ends before it."""
        return max(settling_from(self._num_warmup, fewest=0), max(self._ends, default=0) + FEWEST_AVERAGED)

    def _rescale(self, scale: Tensor) -> None:
        """Restart the tuning of the step size and, after the first window, of the length."""
        first = self._in_first_window()
        growth = (self.state.scale / scale).max()
        tuner = retuned_step_size(self.tuning.tuner, growth, first)
        self.tuning = self.tuning._replace(tuner=tuner)
        self.state = self.state._replace(step_size=tuner.log_step.exp())
        if first and self.settings.trajectory_length is None:  # lengths in the old units carry little information
            length = initial_length(self.dynamics.quarter_period(self.num_params))
            self.tuning = self.tuning._replace(length=length)

    def _stop_learning(self) -> None:
        """Switch to the averages of what was tuned."""
        self.state = self.state._replace(step_size=self.tuning.tuner.log_average.exp())
        if self.settings.trajectory_length is None:
            self.tuning = self.tuning._replace(length=self.tuning.length.averaged())

    def _bounds(self) -> tuple[float, float]:
        """Return the interval of mean lengths over which to tune.

        Squared jumps add up over parameters, and a few slow ones contribute little: where most parameters move fast, the
        largest jump asks for trajectories too short for the slow ones.
        """
        shortest = SHORTEST * self.dynamics.quarter_period(self.num_params) if self._scaled else 0.0
        return shortest, 0.5 * self._max_steps() * float(self.state.step_size)

    def _acceptance(self, start: Point, step_size: Tensor) -> Tensor:
        """Return the mean acceptance probability ``[]`` of one step from ``start``."""
        end = self._travel(start, 1, step_size)
        return vmap(metropolis)(start, end, torch.ones_like(end.work))[2].mean()


class MicrocanonicalLoop(LockstepLoop):
    """Chains of microcanonical dynamics, on which the change of the energy is reported, not the energy."""

    stats_names = ("lp", "energy_error", "acceptance_rate", "n_steps", "diverging", "step_size")


@dataclass(frozen=True)
class LockstepSampler:
    """What starts a :class:`LockstepLoop`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    dynamics: Dynamics
    jump: Jump
    settings: LockstepSettings
    loop: type[LockstepLoop] = LockstepLoop
    scale: Tensor | None = None

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return the chains that adapt together, the same whether an executor runs them or not."""
        return groups_of_chains(self.settings, num_chains)

    def begin(
        self, density: LogDensity, theta: Tensor, seed: int, first_chain: int, kind: str | None = None
    ) -> LockstepLoop:
        """Start chains at ``theta[C, P]``, which move in native code where that pays.

        Raises
        ------
        ValueError
            If a checkpoint asks for native code, and the model cannot be compiled.
        """
        native = native_motion(Trajectories(self.dynamics), self.settings, density, theta, kind)
        return self.loop(self.dynamics, self.jump, density, self.settings, theta, seed, first_chain, native, self.scale)
