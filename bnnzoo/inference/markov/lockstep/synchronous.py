"""Chains in lockstep that draw at the same time, with a step size and scales in common."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.lowered import LoopStep
from bnnzoo.engine.packed import Packed
from bnnzoo.inference.markov.adaptation import Moments, no_moments, observe, pooled_variances
from bnnzoo.inference.markov.chain_settings import ChainSettings, even_groups
from bnnzoo.inference.markov.chains import INITIAL_STEP_SIZE, ChainLoop
from bnnzoo.inference.markov.lockstep.dynamics import Point, is_finite
from bnnzoo.inference.markov.lockstep.motions import Common
from bnnzoo.inference.markov.lockstep.native_chains import NativeMotion, native_kind

__all__ = ["SynchronousLoop", "SynchronousState", "groups_of_chains"]


class SynchronousState(NamedTuple):
    """Where the chains are, and what they have in common: scales ``[P]``, step size ``[]`` and counters."""

    point: Point
    scale: Tensor
    moments: Moments
    step_size: Tensor
    iteration: int
    num_leaps: int
    num_rejected: int


class SynchronousLoop[Tuning: tuple[Any, ...]](ChainLoop):
    """Chains that draw at the same time and share step size and scales; ``tuning`` holds what else they learn.

    Parameters
    ----------
    density, settings, theta, seed, first_chain, adapted_draws
        As in :class:`bnnzoo.inference.markov.chains.ChainLoop`.
    native : NativeMotion, optional
        What moves the chains in native code. Default: they move in one batch.
    scale : Tensor [P], optional
        Units in which the chains start. Default: those of the model.
    """

    state: SynchronousState
    tuning: Tuning
    step: LoopStep | None = None

    def __init__(
        self,
        density: LogDensity,
        settings: ChainSettings,
        theta: Tensor,
        seed: int,
        first_chain: int,
        adapted_draws: int | None = None,
        native: NativeMotion | None = None,
        scale: Tensor | None = None,
    ) -> None:
        super().__init__(density, settings, theta, seed, first_chain, num_uniforms=1, adapted_draws=adapted_draws)
        value, gradient = density.value_and_grad(theta, *density.data)
        momentum = self._initial_momentum(theta)
        point = Point(theta, momentum, gradient, value, torch.zeros_like(value))
        step_size: Tensor = value.new_tensor(settings.step_size or INITIAL_STEP_SIZE)
        self._scaled_from_start = scale is not None
        scale = torch.ones_like(theta[0]) if scale is None else scale.to(theta)
        moments = no_moments(theta)
        self.state = SynchronousState(point, scale, moments, step_size, iteration=0, num_leaps=0, num_rejected=0)
        self._layout, self._all_chains, self.native = Packed(point), torch.arange(self.num_chains), native
        if native is not None:
            self.kind = native_kind(self.kind)
            self.log = native.chunk.log

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` of each chain, warm-up included."""
        return torch.full((self.num_chains,), self.state.iteration)

    @property
    def num_leaps(self) -> int:
        """Number of gradient steps that every chain has taken."""
        return self.state.num_leaps

    @property
    def num_rejected(self) -> int:
        """Number of ends of trajectories at which the log density cannot be computed."""
        return self.state.num_rejected

    def advance(self) -> None:
        """Give every chain its next draw, or in native code the next draws, as many as fit into a chunk."""
        if self.native is not None and self.state.iteration >= self._num_warmup:
            self._draw_natively(self.native)
            return
        self._draw(warm=self.state.iteration < self._num_warmup)
        self.state = self.state._replace(iteration=self.state.iteration + 1)
        if self.state.iteration in self._ends[1:]:
            self._close_window()
        if self.state.iteration == self._num_warmup:
            self._stop_learning()

    @abstractmethod
    def _initial_momentum(self, theta: Tensor) -> Tensor:
        """Return the momenta ``[C, P]`` with which chains start."""

    @abstractmethod
    def _draw(self, warm: bool) -> None:
        """Move every chain to its next draw and learn from it, or keep it."""

    @abstractmethod
    def _num_steps_at(self, iteration: int) -> int:
        """Return the number of steps of a draw after warm-up."""

    def _common(self) -> Common:
        """Return what the chains share while they move; there is no noise in their steps."""
        return Common(self.state.scale, self.state.step_size, torch.zeros_like(self.state.step_size))

    @abstractmethod
    def _show(self, stats: Tensor) -> None:
        """Note what a progress bar shows of the latest statistics ``[C, K]``."""

    @abstractmethod
    def _rescale(self, scale: Tensor) -> None:
        """Adjust the tuning to the new scales ``[P]``, which replace those of the state right after."""

    @abstractmethod
    def _stop_learning(self) -> None:
        """Fix everything that was tuned during warm-up."""

    @property
    def _steps(self) -> tuple[LoopStep, ...]:
        return () if self.step is None else (self.step,)

    @property
    def _state(self) -> tuple[SynchronousState, Tuning]:
        return self.state, self.tuning

    def _resume(self, state: tuple[SynchronousState, Tuning]) -> None:
        self.state, self.tuning = state

    def _shared(self, **numbers: float) -> dict[str, Tensor]:
        """Return step size, scales and other numbers, repeated for each chain."""
        return _repeated(self.num_chains, self.state.step_size, self.state.scale, numbers)

    def _adopt_units(self, tuning: Mapping[str, Tensor]) -> None:
        self.state = self.state._replace(step_size=tuning["step_size"][0], scale=tuning["scale"][0])

    def _draw_natively(self, native: NativeMotion) -> None:
        """Take the next draws of every chain, and keep them."""
        state, steps = self.state, self._steps_ahead(native)
        point, theta, stats, num_rejected = native.draw(state.point, self._common(), steps, self.streams)
        places = torch.arange(len(steps)) + state.iteration - self._num_warmup
        self.draws[:, places], self.stats[:, places] = theta, stats
        self._show(stats[:, -1])
        iteration, num_leaps = state.iteration + len(steps), state.num_leaps + sum(steps)
        num_rejected += state.num_rejected
        self.state = state._replace(point=point, iteration=iteration, num_leaps=num_leaps, num_rejected=num_rejected)

    def _steps_ahead(self, native: NativeMotion) -> list[int]:
        """Return the numbers of steps of the next draws: as many as fit into a chunk of native code, and one at least."""
        first, total = self.state.iteration, self._num_warmup + self._num_draws
        return native.fitting([self._num_steps_at(i) for i in range(first, min(total, first + native.max_draws))])

    def _count_rejected(self, end: Point) -> None:
        """Count the chains that have come to a point at which the log density cannot be computed."""
        failed = ~vmap(is_finite)(end)
        self.state = self.state._replace(num_rejected=self.state.num_rejected + int(failed.sum()))

    def _observe(self) -> None:
        """Add the current points to the moments of the window, if one is open."""
        point, moments = self.state.point, self.state.moments
        if self._ends and self._ends[0] <= self.state.iteration < self._ends[-1]:
            self.state = self.state._replace(moments=vmap(observe)(moments, point.theta))

    def _close_window(self) -> None:
        """Adopt the scales estimated in the window that ends now, shrunk in units of those before, and forget the window."""
        moments, unit = self.state.moments, self.state.scale
        scale = unit * pooled_variances(moments._replace(second=moments.second / unit.square())).sqrt()
        self._rescale(scale)
        self.state = self.state._replace(scale=scale, moments=no_moments(self.state.point.theta))

    def _in_first_window(self) -> bool:
        """Tell whether the scales of the window that ends now replace the units of the model."""
        return self.state.iteration == self._ends[1] and not self._scaled_from_start

    def _keep_all(self, stats: Tensor) -> None:
        """Write down the current points as draws, with statistics ``[C, K]``."""
        self._keep(self._all_chains, self.state.point.theta, stats.cpu())


def _repeated(times: int, step_size: Tensor, scale: Tensor, numbers: Mapping[str, float]) -> dict[str, Tensor]:
    common = {"step_size": step_size, "scale": scale, **{k: step_size.new_tensor(v) for k, v in numbers.items()}}
    return {name: value.expand(times, *value.shape).clone() for name, value in common.items()}


def groups_of_chains(settings: ChainSettings, num_chains: int) -> list[range]:
    """Return the chains that adapt together, the same whether an executor runs them or not."""
    return even_groups(num_chains, settings.num_groups or 1)
