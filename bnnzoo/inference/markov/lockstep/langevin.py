"""The loop of microcanonical Langevin dynamics: no proposals are rejected, so that every step counts, and a small bias stays."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.density import LogDensity
from bnnzoo.inference.markov.adaptation import metric_from, no_moments, observe, window_ends
from bnnzoo.inference.markov.autocorrelation import autocorrelation_time
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical, Point, arrive, drift
from bnnzoo.inference.markov.lockstep.loop import pooled
from bnnzoo.inference.markov.settings import even_groups, refuse_counts, refuse_untuned, usual_steps
from bnnzoo.inference.markov.snapshots import restore_loop, snapshot_of_loop
from bnnzoo.inference.markov.streams import ChainStreams
from bnnzoo.lowering.lowered import LoopStep, looped_value_and_grad
from bnnzoo.lowering.packed import Packed

__all__ = ["LangevinLoop", "LangevinSampler", "LangevinSettings", "batched_langevin_step"]

DYNAMICS = Microcanonical()
FIRST_STEP_SIZE, MAX_SEARCH = 0.1, 30
STEPS_OF_WARMUP, STEPS_OF_NOISE = 32, 16
FORGETTING, OUTLIER, MAX_COORDINATES = 0.9, 8.0, 128
SCALES_UNTIL = 0.65
"""Part of warm-up after which scales stay, so that the autocorrelation is that of the chains to come."""

MOST_STEPS = 1000
"""Steps between draws, if not asked for: where scales were guessed from too few draws, tiny steps would make one last hours."""

DECOHERENCE = 0.4
"""Momentum is forgotten over this many autocorrelation times, as Robnik et al. (2023) found best."""


@dataclass(frozen=True)
class LangevinSettings:
    """What the loop needs to know of a method."""

    num_warmup: int
    num_draws: int
    steps_per_draw: int | None
    energy_variance: float
    decoherence_length: float | None
    step_size: float | None


def batched_langevin_step(value_and_grad: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Packed, Tensor]]:
    """Return one step of all chains: part of the momentum is renewed, then it drifts; the energy change ``[C]`` comes out too.

    The new direction is ``u + nu z`` at unit length, with ``nu = sqrt((exp(2 t / L) - 1) / P)`` and z standard normal.
    """

    def step(
        packed: Packed, scale: Tensor, time: Tensor, nu: Tensor, noise: Tensor, *data: Any
    ) -> tuple[Packed, Tensor]:
        point: Point = packed.value
        momentum = vmap(DYNAMICS.refresh)(point.momentum + nu * noise)
        start = point._replace(momentum=momentum, work=torch.zeros_like(point.work))
        moved = vmap(lambda p: drift(DYNAMICS, p, scale, time))(start)
        value, gradient = value_and_grad(moved.theta, *data)
        end: Point = vmap(lambda p, v, g: arrive(DYNAMICS, p, v, g, scale, time))(moved, value, gradient)
        return Packed(end), end.work - (end.log_density - start.log_density)

    return step


class LangevinLoop:
    """Chains of microcanonical Langevin dynamics, with all their state; see :class:`bnnzoo.inference.markov.protocols.Loop`.

    Step size, scales and decoherence length are common to all chains.

    Parameters
    ----------
    density : LogDensity
    settings : LangevinSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit.
    """

    stats_names = ("lp", "energy_error", "n_steps", "step_size")
    state_names = (
        "point",
        "scale",
        "moments",
        "step_size",
        "length",
        "steps_per_draw",
        "seen",
        "history",
        "count",
        "num_leaps",
    )

    def __init__(
        self,
        density: LogDensity,
        settings: LangevinSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
    ) -> None:
        self.density, self.settings = density, settings
        self.num_chains, self.num_params = theta.shape
        self.streams = ChainStreams(seed, first_chain, self.num_chains, 1, density.dtype, density.device)
        self.count, self.num_leaps, self.energy_error = 0, 0, 0.0
        self.draws = theta.new_zeros(self.num_chains, settings.num_draws, self.num_params)
        self.stats = torch.zeros(self.num_chains, settings.num_draws, len(self.stats_names), dtype=torch.float64)
        self._ends = window_ends(int(SCALES_UNTIL * settings.num_warmup))
        self._tensors = [value for value in density.data if isinstance(value, Tensor)]
        self._start(theta)

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` each chain has, warm-up included."""
        return torch.full((self.num_chains,), self.count)

    def advance(self) -> None:
        """Give every chain its next draw.

        Raises
        ------
        FloatingPointError
            If a chain has left the region where the log density is finite; during warm-up the step is shortened instead.
        """
        warm, before = self.count < self.settings.num_warmup, self.point
        num_steps = STEPS_OF_WARMUP if warm else self.steps_per_draw
        errors = self._travel(num_steps)
        self.energy_error = float(errors.mean())
        if warm:
            self._learn(before)
        else:
            self._refuse_not_finite(errors)
            self._keep(errors, num_steps)
        self.count += 1
        if self.count in self._ends[1:]:
            self._close_window()
        if self.count == self.settings.num_warmup:
            self._stop_learning()

    def numbers(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        return {"energy error": self.energy_error, "step size": float(self.step_size)}

    def snapshot(self) -> dict[str, Any]:
        """Return the state of all chains as arrays."""
        return snapshot_of_loop(self)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on where a loop of the same chains was when ``snapshot`` was taken."""
        restore_loop(self, snapshot)

    def _start(self, theta: Tensor) -> None:
        value, gradient = self.density.value_and_grad(theta, *self.density.data)
        momentum = vmap(DYNAMICS.refresh)(self.streams.normals(self.num_params))
        self.point = Point(theta, momentum, gradient, value, torch.zeros_like(value))
        self.scale, self.moments = torch.ones_like(theta[0]), no_moments(theta, "diagonal")
        self.length = self.settings.decoherence_length or math.sqrt(self.num_params)
        self.steps_per_draw = self.settings.steps_per_draw or 1
        self.seen = (0.0, 0.0)  # discounted sum of energy error / step^6, and of its weights
        places = torch.linspace(0, self.num_params - 1, min(self.num_params, MAX_COORDINATES)).long()
        self._coordinates = places.to(theta.device)
        self.history = theta.new_zeros(self.num_chains, self.settings.num_warmup // 4, len(places))
        self._layout = Packed(self.point)
        self.step_size = value.new_tensor(self.settings.step_size or FIRST_STEP_SIZE)
        looped = looped_value_and_grad(self.density.log_joint)
        self.step = LoopStep(
            batched_langevin_step(self.density.batched_value_and_grad),
            *(self._layout, self.scale, self.step_size, self.step_size, momentum, *self.density.data),
            fallback=batched_langevin_step(looped),
            at_least=usual_steps(self.num_params) * (self.settings.num_warmup + self.settings.num_draws),
        )
        if self.settings.step_size is None:
            self._search_step_size()

    def _travel(self, num_steps: int) -> Tensor:
        """Move all chains by ``num_steps`` steps and return their mean squared energy change a step and parameter ``[C]``."""
        nu = ((2 * self.step_size / self.length).exp() - 1).div(self.num_params).sqrt()
        groups: Any = Packed(self.point).groups
        total = torch.zeros_like(self.point.work)
        with torch.no_grad():
            for step in range(num_steps):
                if step % STEPS_OF_NOISE == 0:
                    noise = self._noise(min(STEPS_OF_NOISE, num_steps - step))
                *groups, change = self.step(
                    *groups, self.scale, self.step_size, nu, noise[step % STEPS_OF_NOISE], *self._tensors
                )
                total = total + change.square()
        self.num_leaps += num_steps
        self.point = self._layout.with_groups(groups).value
        return total / (num_steps * self.num_params)

    def _noise(self, num_steps: int) -> Tensor:
        flat = self.streams.normals(num_steps * self.num_params)
        return flat.view(self.num_chains, num_steps, self.num_params).transpose(0, 1).contiguous()

    def _learn(self, before: Point) -> None:
        """Let step size and scales learn from the last steps; steps into nowhere are taken back and shortened."""
        if not math.isfinite(self.energy_error) or not bool(self.point.gradient.isfinite().all()):
            self.point, self.step_size, self.seen = before, 0.5 * self.step_size, (0.0, 0.0)
            return
        error, weight = self.seen
        # The energy error of a leapfrog step grows like its sixth power; a single wild step is not to stop the chain, and
        # on the way down to typical points what steps have cost so far soon says nothing.
        new = self.energy_error / float(self.step_size) ** 6
        if error > 0 and OUTLIER * new < error / weight:
            error = weight = 0.0
        new = min(new, OUTLIER * error / weight) if error > 0 else new
        self.seen = FORGETTING * error + new, FORGETTING * weight + 1
        if self.settings.step_size is None:
            self.step_size = torch.full_like(self.step_size, self._wanted_step_size())
        if self._ends and self._ends[0] <= self.count < self._ends[-1]:
            self.moments = vmap(observe)(self.moments, self.point.theta, self.point.gradient)
        place = self.count - (self.settings.num_warmup - self.history.shape[1])
        if place >= 0:
            self.history[:, place] = self.point.theta[:, self._coordinates]

    def _wanted_step_size(self) -> float:
        error, weight = self.seen
        return (self.settings.energy_variance * weight / error) ** (1 / 6) if error > 0 else 2 * float(self.step_size)

    def _close_window(self) -> None:
        """Take over the scales estimated in the window that ends, and forget the window and what steps cost before."""
        new = metric_from(pooled(self.moments)).inverse_mass.sqrt()
        if self.settings.step_size is None and self.count == self._ends[1]:
            self.step_size = self.step_size * (self.scale / new).max()
        self.scale, self.moments, self.seen = new, no_moments(self.point.theta, "diagonal"), (0.0, 0.0)

    def _stop_learning(self) -> None:
        """Set the decoherence length from the autocorrelation of the last quarter of warm-up, and how often a draw is kept."""
        if self.settings.decoherence_length is None and self.history.shape[1] >= 2 * STEPS_OF_WARMUP:
            steps = STEPS_OF_WARMUP * float(autocorrelation_time(self.history).mean())
            self.length = DECOHERENCE * steps * float(self.step_size)
        if self.settings.steps_per_draw is None:
            self.steps_per_draw = round(min(max(1.0, self.length / float(self.step_size)), MOST_STEPS))

    def _keep(self, errors: Tensor, num_steps: int) -> None:
        place, same = self.count - self.settings.num_warmup, torch.ones_like(errors)
        columns = (self.point.log_density, errors, num_steps * same, self.step_size * same)
        self.draws[:, place] = self.point.theta
        self.stats[:, place] = torch.stack([column.double() for column in columns], 1).cpu()

    def _refuse_not_finite(self, errors: Tensor) -> None:
        finite = errors.isfinite() & self.point.gradient.isfinite().all(1)
        if bool(finite.all()):
            return
        raise FloatingPointError(
            f"MCLMC: chain {int((~finite).nonzero()[0])} left the region where the log density is finite, at draw "
            f"{self.count - self.settings.num_warmup} with step size {float(self.step_size):.3g}. Lower energy_variance "
            f"(now {self.settings.energy_variance}), warm up longer, or use MAMS(), which rejects such steps."
        )

    def _search_step_size(self) -> None:
        """Change the step by at most a factor of four at a time until its energy error is about the one wanted."""
        start, wanted = self.point, self.settings.energy_variance
        for _ in range(MAX_SEARCH):
            error = float(self._travel(1).mean())
            self.point = start
            factor = (wanted / error) ** (1 / 6) if error > 0 else 4.0
            factor = min(max(factor, 0.25), 4.0) if math.isfinite(error) else 0.25
            self.step_size = factor * self.step_size
            if 0.8 < factor < 1.25:
                return


@dataclass(frozen=True)
class LangevinSampler:
    """What begins a :class:`LangevinLoop`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    settings: LangevinSettings
    num_groups: int

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return the chains that adapt together, wherever they run."""
        return even_groups(num_chains, self.num_groups)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> LangevinLoop:
        """Start chains at ``theta[C, P]``."""
        return LangevinLoop(density, self.settings, theta, seed, first_chain)

    def refuse_impossible(self, name: str) -> None:
        """Raise ValueError if the settings of the method ``name`` cannot be."""
        refuse_counts(name, {"num_groups": (self.num_groups, 1)})
        positive = ("steps_per_draw", "energy_variance", "decoherence_length", "step_size")
        for argument in positive:
            value = getattr(self.settings, argument)
            if value is not None and not value > 0:
                raise ValueError(f"{name}({argument}={value}): write a positive number.")
        refuse_untuned(name, self.settings)
