"""The loop of microcanonical Langevin dynamics: nothing is rejected, so that every step counts, and a small bias remains."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.mixing import autocorrelation_time
from bnnzoo.core.settings import Count, Positive
from bnnzoo.engine.choose import NATIVE_PAYS_FROM
from bnnzoo.engine.packed import Packed
from bnnzoo.inference.markov.chain_settings import MAX_LOCKSTEP_CHAINS, ChainSettings
from bnnzoo.inference.markov.chains import ValueAndGrad
from bnnzoo.inference.markov.lockstep.dynamics import Point, arrive, drift
from bnnzoo.inference.markov.lockstep.motions import DYNAMICS, Common, Langevin, LockstepState, turned
from bnnzoo.inference.markov.lockstep.native_chains import NativeMotion, native_motion
from bnnzoo.inference.markov.lockstep.synchronous import SynchronousLoop, groups_of_chains

__all__ = ["LangevinLoop", "LangevinSampler", "LangevinSettings", "batched_langevin_step"]

MOTION = Langevin()
MAX_SEARCH = 30
STEPS_OF_WARMUP, STEPS_OF_NOISE = 32, 16
ERROR_DISCOUNT, OUTLIER, MAX_COORDINATES = 0.9, 8.0, 128
SCALES_UNTIL = 0.65
"""Fraction of warm-up after which scales are fixed, so that the autocorrelation is that of the chains to come."""

MAX_STEPS_PER_DRAW = 1000
"""Bound on the default number of steps between draws: with scales from too few draws and tiny steps, one could take hours."""

SMALLEST = 1e-300  # by which an error is divided: the sixth power of a tiny step may underflow

DECOHERENCE = 0.4
"""The direction decoheres over this many autocorrelation times, which Robnik et al. (2023) found best."""


@dataclass(frozen=True, kw_only=True)
class LangevinSettings(ChainSettings):
    """Settings of microcanonical Langevin dynamics, whose chains adapt together and reject nothing."""

    native_pays_from: ClassVar[float] = NATIVE_PAYS_FROM
    max_native_chains: ClassVar[int] = MAX_LOCKSTEP_CHAINS

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
    energy_error : float
        Mean squared energy change of the latest draw, per step and parameter.
    """

    length: float
    steps_per_draw: int
    error: Discounted
    history: Tensor
    energy_error: float


def batched_langevin_step(value_and_grad: ValueAndGrad) -> Callable[..., tuple[Packed, Tensor]]:
    """Return one step of all chains, partial refreshment of the momentum included, and its energy change ``[C]``."""

    def step(
        packed: Packed, scale: Tensor, time: Tensor, nu: Tensor, noise: Tensor, *data: Any
    ) -> tuple[Packed, Tensor]:
        point: Point = packed.value
        start: Point = vmap(lambda p, z: turned(p, nu, z))(point, noise)
        moved = vmap(lambda p: drift(DYNAMICS, p, scale, time))(start)
        value, gradient = value_and_grad(moved.theta, *data)
        end: Point = vmap(lambda p, v, g: arrive(DYNAMICS, p, v, g, scale, time))(moved, value, gradient)
        return Packed(end), end.work - (end.log_density - start.log_density)

    return step


class LangevinLoop(SynchronousLoop[LangevinTuning]):
    """Chains of microcanonical Langevin dynamics.

    Parameters
    ----------
    density, settings, theta, seed, first_chain, native, scale
        As in :class:`bnnzoo.inference.markov.lockstep.synchronous.SynchronousLoop`.
    """

    kind = "langevin"
    stats_names = ("lp", "energy_error", "n_steps", "diverging", "step_size")

    def __init__(
        self,
        density: LogDensity,
        settings: LangevinSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
        native: NativeMotion | None = None,
        scale: Tensor | None = None,
    ) -> None:
        until = int(SCALES_UNTIL * settings.num_warmup)
        super().__init__(density, settings, theta, seed, first_chain, until, native, scale)
        self.settings = settings
        self._coordinates = _some_places(self.num_params).to(theta.device)
        history = theta.new_zeros(self.num_chains, settings.num_warmup // 4, len(self._coordinates))
        length = settings.decoherence_length or math.sqrt(self.num_params)
        self.tuning = LangevinTuning(length, settings.steps_per_draw or 1, NO_ERROR_YET, history, energy_error=0.0)
        if native is None:
            step_size, momentum = self.state.step_size, self.state.point.momentum
            args = self._layout, self.state.scale, step_size, step_size, momentum
            self.step = self._lowered(batched_langevin_step, *args)
        if settings.step_size is None:
            self._search_step_size()

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]``, scales ``[C, P]``, decoherence length and steps of a draw ``[C]``, common to all chains."""
        return self._shared(decoherence_length=self.tuning.length, steps_per_draw=self.tuning.steps_per_draw)

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Go on with the step size, scales and lengths found before."""
        self._adopt_units(tuning)
        steps = self.settings.steps_per_draw or round(float(tuning["steps_per_draw"][0]))
        length = self.settings.decoherence_length or float(tuning["decoherence_length"][0])
        self.tuning = self.tuning._replace(length=length, steps_per_draw=steps)

    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        return {"energy error": self.tuning.energy_error, "step size": float(self.state.step_size)}

    def _initial_momentum(self, theta: Tensor) -> Tensor:
        return vmap(DYNAMICS.refresh)(self.streams.normals(self.num_params))

    def _draw(self, warm: bool) -> None:
        """Move every chain by the steps of one draw, then learn from them or keep the draws.

        A chain that comes to a point at which the log density cannot be computed returns to its last draw.
        """
        before = self.state.point
        num_steps = STEPS_OF_WARMUP if warm else self.tuning.steps_per_draw
        moving, common = self._travel(num_steps), self._common()
        end = vmap(MOTION.end, in_dims=(0, 0, None, None, None))
        point, stats = end(before, moving, common, torch.tensor(num_steps, device=before.theta.device), common.nu)
        self._count_rejected(moving.point)
        self.state = self.state._replace(point=point)
        self._show(stats)
        if warm:
            self._learn(before)
        else:
            self._keep_all(stats)

    def _show(self, stats: Tensor) -> None:
        errors = stats[:, self.stats_names.index("energy_error")].to(self.state.scale.dtype)
        self.tuning = self.tuning._replace(energy_error=float(errors[errors.isfinite()].mean()))

    def _num_steps_at(self, iteration: int) -> int:
        return self.tuning.steps_per_draw

    def _common(self) -> Common:
        """Return what the chains share; noise has the strength ``nu = sqrt((exp(2 t / L) - 1) / P)`` in steps of length t."""
        scale, step_size = self.state.scale, self.state.step_size
        nu = ((2 * step_size / self.tuning.length).exp() - 1).div(self.num_params).sqrt()
        return Common(scale, step_size, nu)

    def _travel(self, num_steps: int) -> LockstepState:
        """Return where chains are after ``num_steps`` steps."""
        self.state = self.state._replace(num_leaps=self.state.num_leaps + num_steps)
        if self.native is not None:
            return self.native.travel(self.state.point, self._common(), num_steps, self.streams)
        assert self.step is not None
        common: Sequence[Tensor] = self._common()
        groups: Sequence[Tensor] = Packed(self.state.point).groups
        total = torch.zeros_like(self.state.point.work)
        with torch.no_grad():
            for step in range(num_steps):
                if step % STEPS_OF_NOISE == 0:
                    noise = self._noise(min(STEPS_OF_NOISE, num_steps - step))
                *groups, change = self.step(*groups, *common, noise[step % STEPS_OF_NOISE], *self._tensors)
                total = total + change.square()
        return LockstepState(self._layout.with_groups(groups).value, total)

    def _noise(self, num_steps: int) -> Tensor:
        drawn = self.streams.normals(num_steps * self.num_params)
        return drawn.view(self.num_chains, num_steps, -1).transpose(0, 1).contiguous()

    def _learn(self, before: Point) -> None:
        """Update step size, moments and history from the last steps; if they failed in all chains, the step is shortened."""
        state, tuning = self.state, self.tuning
        if not math.isfinite(tuning.energy_error) or not bool(state.point.gradient.isfinite().all()):
            self.state = state._replace(point=before, step_size=0.5 * state.step_size)
            self.tuning = tuning._replace(error=NO_ERROR_YET)
            return
        size = float(state.step_size)
        self.tuning = tuning._replace(error=_updated(tuning.error, tuning.energy_error / max(size**6, SMALLEST)))
        if self.settings.step_size is None:
            wanted = _wanted_step_size(self.tuning.error, self.settings.energy_variance, size)
            self.state = state._replace(step_size=torch.full_like(state.step_size, wanted))
        self._observe()
        place = state.iteration - (self._num_warmup - tuning.history.shape[1])
        if place >= 0:
            tuning.history[:, place] = state.point.theta[:, self._coordinates]

    def _rescale(self, scale: Tensor) -> None:
        """Rescale the step size after the first window, and forget the energy errors of earlier steps."""
        if self.settings.step_size is None and self._in_first_window():
            self.state = self.state._replace(step_size=self.state.step_size * (self.state.scale / scale).max())
        self.tuning = self.tuning._replace(error=NO_ERROR_YET)

    def _stop_learning(self) -> None:
        """Set the decoherence length from the autocorrelation of the last quarter of warm-up, and how often draws are kept."""
        step_size, history = float(self.state.step_size), self.tuning.history
        if self.settings.decoherence_length is None and history.shape[1] >= 2 * STEPS_OF_WARMUP:
            length = DECOHERENCE * STEPS_OF_WARMUP * step_size * float(autocorrelation_time(history).mean())
            self.tuning = self.tuning._replace(length=length)
        if self.settings.steps_per_draw is None:
            steps = min(max(1.0, self.tuning.length / step_size), MAX_STEPS_PER_DRAW)
            self.tuning = self.tuning._replace(steps_per_draw=round(steps))

    def _search_step_size(self) -> None:
        """Change the step by a factor of at most four at a time until its energy error is about the one wanted."""
        wanted = self.settings.energy_variance
        for _ in range(MAX_SEARCH):
            factor = _next_factor(wanted, float((self._travel(1).squares / self.num_params).mean()))
            self.state = self.state._replace(step_size=factor * self.state.step_size)
            if 0.8 < factor < 1.25:
                return


def _some_places(num_params: int) -> Tensor:
    """Return the numbers of the parameters whose history is kept, spread over all of them."""
    return torch.linspace(0, num_params - 1, min(num_params, MAX_COORDINATES)).long()


def _next_factor(wanted: float, error: float) -> float:
    """Return by what to multiply a step whose energy error this is: errors grow with its sixth power."""
    if not math.isfinite(error):
        return 0.25
    return min(max((wanted / error) ** (1 / 6), 0.25), 4.0) if error > 0 else 4.0


def _wanted_step_size(error: Discounted, wanted: float, step_size: float) -> float:
    """Return the step size at which the errors seen so far would have been the one wanted."""
    if error.total > 0:
        return (wanted * error.weight / error.total) ** (1 / 6)
    return 2 * step_size


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
    """What starts a :class:`LangevinLoop`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    settings: LangevinSettings
    scale: Tensor | None = None

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return the chains that adapt together, the same whether an executor runs them or not."""
        return groups_of_chains(self.settings, num_chains)

    def begin(
        self, density: LogDensity, theta: Tensor, seed: int, first_chain: int, kind: str | None = None
    ) -> LangevinLoop:
        """Start chains at ``theta[C, P]``, which move in native code where that pays.

        Raises
        ------
        ValueError
            If a checkpoint asks for native code, and the model cannot be compiled.
        """
        native = native_motion(MOTION, self.settings, density, theta, kind)
        return LangevinLoop(density, self.settings, theta, seed, first_chain, native, self.scale)
