"""The loop over chains in lockstep: all take trajectories of the same number of steps, so that no tree is needed.

Step size, scales and trajectory length are common to all chains and learnt from all of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.density import LogDensity
from bnnzoo.inference.markov.adaptation import (
    Moments,
    StepSize,
    metric_from,
    no_moments,
    observe,
    restart_step_size,
    update_step_size,
    window_ends,
)
from bnnzoo.inference.markov.hamiltonian.kernel import DIVERGENCE_THRESHOLD
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics, Point, arrive, drift
from bnnzoo.inference.markov.settings import even_groups, refuse_counts, refuse_tuning, usual_steps
from bnnzoo.inference.markov.snapshots import restore_loop, snapshot_of_loop
from bnnzoo.inference.markov.streams import ChainStreams
from bnnzoo.inference.markov.trajectory_length import Jump, initial_length, update_length
from bnnzoo.lowering.lowered import LoopStep, looped_value_and_grad
from bnnzoo.lowering.packed import Packed

__all__ = ["LockstepLoop", "LockstepSampler", "LockstepSettings", "batched_step", "pooled", "settle"]

GOLDEN = 0.5 * (5**0.5 - 1)
FIRST_STEPS, EARLY_STEPS, FIRST_STEP_SIZE, MAX_SEARCH = 8, 256, 0.1, 50
LEAST_ACCEPTANCE, LEAST_WEIGHT = 1e-2, 0.02
SHORTEST = 0.5
"""Least mean length of a trajectory in quarter periods of a standard normal, once scales are known."""


@dataclass(frozen=True)
class LockstepSettings:
    """What the loop needs to know of a method."""

    num_warmup: int
    num_draws: int
    target_accept: float
    jump: Jump
    trajectory_length: float | None
    max_steps: int
    step_size: float | None


def batched_step(dynamics: Dynamics, value_and_grad: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Packed]:
    """Return one splitting step of all chains, with the gradient in the middle; ``scale[P]`` and ``time[]`` are common."""

    def step(packed: Packed, scale: Tensor, time: Tensor, *data: Any) -> Packed:
        moved = vmap(lambda point: drift(dynamics, point, scale, time))(packed.value)
        value, gradient = value_and_grad(moved.theta, *data)
        return Packed(vmap(lambda p, v, g: arrive(dynamics, p, v, g, scale, time))(moved, value, gradient))

    return step


def settle(start: Point, end: Point, uniform: Tensor) -> tuple[Point, Tensor, Tensor]:
    """Accept each chain's trajectory with probability ``min(1, exp(-energy error))``; all chains at once.

    Returns
    -------
    point : Point
        Where the chains go on.
    error, acceptance : Tensor
        Energy error, infinite where it is not a number, and probability of acceptance ``[C]``.
    """
    error = end.work - (end.log_density - start.log_density)
    error = torch.where(error.isnan(), torch.inf, error)
    accepted = uniform.log() < -error
    pairs = zip(end, start, strict=True)
    kept = (torch.where(accepted.view(-1, *(1,) * (new.ndim - 1)), new, old) for new, old in pairs)
    return Point(*kept), error, (-error).exp().clamp(max=1.0)


def pooled(moments: Moments) -> Moments:
    """Return the moments within chains of all chains together: what differs between chains is left out.

    Networks have many equivalent modes; a scale that spanned them would be far too long for the one a chain is in.
    """
    num_chains, count = len(moments.count), moments.count[0]
    return Moments(num_chains * (count - 1) + 1, *(value.sum(0) for value in moments[1:]))


class LockstepLoop:
    """Chains of one kind of dynamics, with all their state; see :class:`bnnzoo.inference.markov.protocols.Loop`.

    Parameters
    ----------
    dynamics : Dynamics
    density : LogDensity
    settings : LockstepSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit.
    """

    stats_names = ("lp", "energy", "acceptance_rate", "n_steps", "diverging", "step_size")
    state_names = ("point", "scale", "mean", "moments", "step_size", "tuner", "length", "count", "num_leaps")

    def __init__(
        self,
        dynamics: Dynamics,
        density: LogDensity,
        settings: LockstepSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
    ) -> None:
        self.dynamics, self.density, self.settings = dynamics, density, settings
        self.num_chains, self.num_params = theta.shape
        self.streams = ChainStreams(seed, first_chain, self.num_chains, 1, density.dtype, density.device)
        self.count, self.num_leaps, self.acceptance = 0, 0, 0.0
        self.draws = theta.new_zeros(self.num_chains, settings.num_draws, self.num_params)
        self.stats = torch.zeros(self.num_chains, settings.num_draws, len(self.stats_names), dtype=torch.float64)
        self._offset = float(np.random.default_rng(seed).random())
        self._ends = window_ends(settings.num_warmup)
        self._tensors = [value for value in density.data if isinstance(value, Tensor)]
        self._start(theta)

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` each chain has, warm-up included."""
        return torch.full((self.num_chains,), self.count)

    def advance(self) -> None:
        """Give every chain its next draw."""
        start, uniform = self._refreshed(), self.streams.uniforms()[0]
        num_steps = self._next_num_steps()
        end = self._travel(start, num_steps, self.step_size)
        self.point, error, acceptance = settle(start, end, uniform)
        self.acceptance = float(acceptance.mean())
        if self.count < self.settings.num_warmup:
            self._learn(start, end, acceptance, num_steps)
        else:
            self._keep(start, error, acceptance, num_steps)
        self.count += 1
        if self.count in self._ends[1:]:
            self._close_window()
        if self.count == self.settings.num_warmup:
            self._stop_learning()

    def numbers(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        step_size = float(self.step_size)
        return {"acceptance": self.acceptance, "step size": step_size, "steps": self.length.value / step_size}

    def snapshot(self) -> dict[str, Any]:
        """Return the state of all chains as arrays."""
        return snapshot_of_loop(self)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on where a loop of the same chains was when ``snapshot`` was taken."""
        restore_loop(self, snapshot)

    def _start(self, theta: Tensor) -> None:
        value, gradient = self.density.value_and_grad(theta, *self.density.data)
        self.point = Point(theta, torch.zeros_like(theta), gradient, value, torch.zeros_like(value))
        self.scale, self.mean = torch.ones_like(theta[0]), theta.clone()
        self.moments = no_moments(theta, "diagonal")
        self._layout = Packed(self.point)
        self.step_size: Tensor = value.new_tensor(self.settings.step_size or FIRST_STEP_SIZE)
        looped = looped_value_and_grad(self.density.log_joint)
        self.step = LoopStep(
            batched_step(self.dynamics, self.density.batched_value_and_grad),
            *(self._layout, self.scale, self.step_size, *self.density.data),
            fallback=batched_step(self.dynamics, looped),
            at_least=usual_steps(self.num_params) * (self.settings.num_warmup + self.settings.num_draws),
        )
        if self.settings.step_size is None:
            self._search_step_size()
        zero = torch.zeros_like(self.step_size)
        self.tuner = StepSize(self.step_size.log(), zero, zero, (10 * self.step_size).log(), zero)
        self.length = initial_length(self.settings.trajectory_length or FIRST_STEPS * float(self.step_size))

    def _refreshed(self) -> Point:
        """Give every chain a new momentum."""
        momentum = vmap(self.dynamics.refresh)(self.streams.normals(self.num_params))
        return self.point._replace(momentum=momentum, work=torch.zeros_like(self.point.work))

    def _travel(self, point: Point, num_steps: int, time: Tensor) -> Point:
        """Return where trajectories of ``num_steps`` steps end."""
        groups: Any = Packed(point).groups
        with torch.no_grad():
            for _ in range(num_steps):
                groups = self.step(*groups, self.scale, time, *self._tensors)
        self.num_leaps += num_steps
        end: Point = self._layout.with_groups(groups).value
        return end

    def _next_num_steps(self) -> int:
        """Spread lengths evenly between zero and twice the mean, so that no period of the posterior is met again and again."""
        fraction = 2 * ((self._offset + self.count * GOLDEN) % 1.0)
        steps = math.ceil(fraction * self.length.value / float(self.step_size))
        return min(max(steps, 1), self._most_steps())

    @property
    def _scaled(self) -> bool:
        """Whether positions are measured in units of estimated scales."""
        return bool(self._ends) and self.count >= self._ends[1]

    def _most_steps(self) -> int:
        """Bound trajectories further while scales are unknown: the widest direction takes too many of the narrowest's steps."""
        known = self._scaled or not self._ends or self.settings.trajectory_length is not None
        return self.settings.max_steps if known else min(self.settings.max_steps, EARLY_STEPS)

    def _bounds(self) -> tuple[float, float]:
        """Say between which mean lengths to tune.

        Squared jumps add up over parameters and so hear little of the few slow ones: where most move fast, they ask for
        trajectories too short for those.
        """
        shortest = SHORTEST * self.dynamics.quarter_period(self.num_params) if self._scaled else 0.0
        return shortest, 0.5 * self._most_steps() * float(self.step_size)

    def _learn(self, start: Point, end: Point, acceptance: Tensor, num_steps: int) -> None:
        """Let step size, length and scales learn from the trajectories just travelled."""
        if self.settings.trajectory_length is None:
            measure = vmap(self.settings.jump, in_dims=(0, 0, 0, 0, None))
            jumped, slope = measure(start, end, self.mean, acceptance, self.scale)
            time = num_steps * float(self.step_size)
            self.length = update_length(self.length, float(jumped.mean()), float(slope.mean()), time, self._bounds())
        harmonic = 1 / (1 / acceptance.clamp(min=LEAST_ACCEPTANCE)).mean()
        self.tuner = update_step_size(self.tuner, harmonic, self.settings.target_accept)
        self.step_size = self.tuner.log_step.exp()
        weight = max(1 / (self.count + 1), LEAST_WEIGHT)
        self.mean = (1 - weight) * self.mean + weight * self.point.theta
        if self._ends and self._ends[0] <= self.count < self._ends[-1]:
            self.moments = vmap(observe)(self.moments, self.point.theta, self.point.gradient)

    def _close_window(self) -> None:
        """Take over the scales estimated in the window that ends, and forget the window."""
        new = metric_from(pooled(self.moments)).inverse_mass.sqrt()
        first, last = self.count == self._ends[1], self.count == self._ends[-1]
        growth = (self.scale / new).max() if first else torch.ones_like(self.step_size)
        if first or not last:
            self.tuner = restart_step_size(self.tuner, growth)
            self.step_size = self.tuner.log_step.exp()
        if first and self.settings.trajectory_length is None:  # what was learnt in the units of before says little
            self.length = initial_length(self.dynamics.quarter_period(self.num_params))
        self.scale = new
        self.moments = no_moments(self.point.theta, "diagonal")

    def _stop_learning(self) -> None:
        """Use from now on what was learnt on average, not last."""
        self.step_size = self.tuner.log_average.exp()
        if self.settings.trajectory_length is None:
            self.length = self.length.averaged()

    def _keep(self, start: Point, error: Tensor, acceptance: Tensor, num_steps: int) -> None:
        place = self.count - self.settings.num_warmup
        moved = (self.point.theta != start.theta).any(1)
        energy = vmap(self.dynamics.kinetic)(start.momentum) - start.log_density + torch.where(moved, error, 0.0)
        same = torch.ones_like(error)
        columns = (self.point.log_density, energy, acceptance, num_steps * same, error > DIVERGENCE_THRESHOLD)
        self.draws[:, place] = self.point.theta
        self.stats[:, place] = torch.stack([c.double() for c in (*columns, self.step_size * same)], 1).cpu()

    def _search_step_size(self) -> None:
        """Double or halve the step until the chains' mean acceptance of one step crosses 0.8."""
        start = self._refreshed()
        upwards = self._acceptance(start) > 0.8
        for _ in range(MAX_SEARCH):
            self.step_size = 2 * self.step_size if upwards else self.step_size / 2
            if (self._acceptance(start) > 0.8) != upwards:
                return

    def _acceptance(self, start: Point) -> float:
        end = self._travel(start, 1, self.step_size)
        return float(settle(start, end, torch.ones_like(end.work))[2].mean())


@dataclass(frozen=True)
class LockstepSampler:
    """What begins a :class:`LockstepLoop`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    dynamics: Dynamics
    settings: LockstepSettings
    num_groups: int

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return the chains that adapt together, wherever they run."""
        return even_groups(num_chains, self.num_groups)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> LockstepLoop:
        """Start chains at ``theta[C, P]``."""
        return LockstepLoop(self.dynamics, density, self.settings, theta, seed, first_chain)

    def refuse_impossible(self, name: str) -> None:
        """Raise ValueError if the settings of the method ``name`` cannot be."""
        refuse_tuning(name, self.settings)
        refuse_counts(name, {"num_groups": (self.num_groups, 1)})
        length, most = self.settings.trajectory_length, self.settings.max_steps
        if (length is not None and length <= 0) or most < 1:
            raise ValueError(
                f"{name}(trajectory_length={length}, max_steps={most}): the length is positive, or None to tune it, and at least "
                f"one step is taken."
            )
