"""Chains in lockstep, which draw at the same time and learn step size and mass matrix together."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.choose import Engine, typical_num_steps
from bnnzoo.engine.runner import runner
from bnnzoo.inference.markov.chain_settings import AdaptiveSettings, ChainSettings, even_groups
from bnnzoo.inference.markov.density_gradient import density_gradient
from bnnzoo.inference.markov.hamiltonian.kernel import Metric
from bnnzoo.inference.markov.lockstep.dynamics import Point
from bnnzoo.inference.markov.lockstep.lockstep_program import (
    NUM_STREAMS,
    LockstepProgram,
    at_rest,
)
from bnnzoo.inference.markov.lockstep.motions import Common, LockstepState, Motion
from bnnzoo.inference.markov.lockstep.shared_metric import SharedMetric, of_all
from bnnzoo.inference.markov.metrics import inverse_mass_of, mass_matrix_for, metric_of
from bnnzoo.inference.markov.noise import keys_of_chains
from bnnzoo.inference.markov.running import RunningChains

__all__ = ["INITIAL_STEP_SIZE", "LockstepChains", "groups_of_chains"]

INITIAL_STEP_SIZE = 0.1
"""Where the search for a step size begins."""


class LockstepChains[Tuning: tuple[Any, ...]](RunningChains):
    """Chains that share step size and mass matrix; a :class:`bnnzoo.inference.markov.protocols.Loop`.

    A subclass says what they learn besides, in ``tuning``.

    Parameters
    ----------
    motion : Motion
    density : LogDensity
    settings : AdaptiveSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit: its random numbers depend on it and the seed alone.
    engine : {"auto", "native", "graph", "python"}
    root : Tensor [P] or [P, P], or Metric [1, ...], optional
        Widths in which chains start, a root of a covariance, or the first mass matrix. Default: the units of the model.
    adapted_draws : int, optional
        Draws of warm-up over which the mass matrix is adapted. Default: all of them.

    Attributes
    ----------
    step_size : float
    shared : SharedMetric
    """

    tuning: Tuning

    def __init__(
        self,
        motion: Motion,
        density: LogDensity,
        settings: AdaptiveSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
        engine: Engine = "auto",
        root: Tensor | Metric | None = None,
        adapted_draws: int | None = None,
    ) -> None:
        self.motion, self.stats_names, self.num_params = motion, motion.stats_names, theta.shape[1]
        chains = range(first_chain, first_chain + len(theta))
        super().__init__(settings, theta, keys_of_chains(seed, chains, NUM_STREAMS))
        self._offset = float(np.random.default_rng(seed).random())
        kind = mass_matrix_for(settings.mass_matrix, density)
        self.shared = SharedMetric(kind, self._num_warmup if adapted_draws is None else adapted_draws, theta, root)
        self.step_size, self._skipped = settings.step_size or INITIAL_STEP_SIZE, 0
        self.fleet = runner(
            LockstepProgram(motion),
            density_gradient(density),
            *at_rest(motion, theta, self.keys, self._shared(steps=1), self._num_warmup, self._total),
            self.row,
            engine=engine,
            native_pays=settings.in_native_code(density),
            num_steps=typical_num_steps(self.num_params) * self._total,
            num_cycles=self._total,
            log=self.log,
        )
        self._look_around()

    @property
    def num_gradients(self) -> int:
        """Number of gradients that all chains have evaluated together."""
        return int(self.fleet.moving.num_steps.sum())

    @property
    def num_rejected(self) -> int:
        """Number of draws at whose end the log density could not be computed."""
        return int(self.fleet.resting.counters.rejected.sum())

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]``, other numbers ``[C]``, and the inverse mass of each chain as :func:`.inverse_mass_of` returns it."""
        numbers = {"step_size": self.step_size, "num_warmup": self._num_warmup - self._skipped, **self._tuned_numbers()}
        numbers_of_all = {name: self.draws.new_full((self.num_chains,), value) for name, value in numbers.items()}
        return numbers_of_all | of_all(inverse_mass_of(self.shared.metric), self.num_chains)

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Go on with what was learnt before."""
        self.step_size = float(tuning["step_size"][0])
        self.shared.metric = metric_of({name: value[:1] for name, value in tuning.items()})
        self._adopt_numbers({name: float(tuning[name][0]) for name in self._tuned_numbers() if name in tuning})
        self._tell()

    @property
    @abstractmethod
    def _num_last(self) -> int:
        """Most draws that warm-up takes after its last window, once it has converged."""

    @property
    def _goes_on(self) -> int:
        """Draw of warm-up with which chains go on that have converged."""
        return max(self.shared.ends[-1], self._num_warmup - self._num_last)

    @abstractmethod
    def _tuned_numbers(self) -> dict[str, float]:
        """Return what the chains learn besides step size and mass matrix."""

    @abstractmethod
    def _adopt_numbers(self, numbers: Mapping[str, float]) -> None:
        """Replace what the chains would learn besides step size and mass matrix."""

    @abstractmethod
    def _common(self) -> Common:
        """Return what the chains have in common, as they have learnt it so far."""

    @abstractmethod
    def _learn(self, draw: int) -> None:
        """Learn from a draw of warm-up."""

    @abstractmethod
    def _rescale(self, growth: float, first: bool) -> None:
        """Adjust the tuning to a mass matrix under which steps can grow by a factor; the ``first`` to be relied on."""

    @abstractmethod
    def _stop_learning(self) -> None:
        """Fix everything that was tuned during warm-up."""

    def _shared(self, *, nu: float = 0.0, length: float = 0.0, steps: int) -> Common:
        """Return what the chains have in common; see :class:`bnnzoo.inference.markov.lockstep.motions.Common`."""
        one = self.draws.new_ones(self.num_chains)
        return Common(
            root=self.shared.root,
            step_size=self.step_size * one,
            nu=nu * one,
            length=torch.full_like(one, length, dtype=torch.float64),
            steps=torch.full_like(one, steps, dtype=torch.int64),
            offset=torch.full_like(one, self._offset, dtype=torch.float64),
        )

    def _look_around(self) -> None:
        """Find the log density where the chains are."""
        moving, resting = self.fleet.moving, self.fleet.resting
        here, common = resting.drawn, self._shared(steps=1)
        still = self._moved(here, common._replace(step_size=torch.zeros_like(common.step_size))).point
        drawn = here._replace(gradient=still.gradient.clone(), log_density=still.log_density.clone())
        self.fleet.write(moving, resting._replace(start=drawn, drawn=drawn))

    def _moved(self, point: Point, common: Common) -> LockstepState:
        """Return where one step leads from ``point[C, ...]``; the chains stay where they are."""
        moving, resting = self.fleet.moving, self.fleet.resting
        state = LockstepState(point, torch.zeros_like(point.work))
        before = moving._replace(state=state, stop=moving.num_steps + 2)  # not the last step of its draw
        found: LockstepState = self.fleet.tried(before, resting._replace(common=common)).state
        return found

    def _tell(self, **changed: Any) -> None:
        """Let the chains go on with what they have learnt."""
        resting = self.fleet.resting
        self.fleet.write(resting=resting._replace(common=self._common(), **changed))

    def _attend(self) -> None:
        """Learn from a draw of warm-up, once all chains have it."""
        counters, schedule = self.fleet.resting.counters, self.fleet.resting.schedule
        if bool((counters.draws < schedule.until).any()):
            return
        draws = int(counters.draws[0])
        if draws > self._num_warmup or self._num_warmup == 0:
            return
        self._learn(draws - 1)
        if draws in self.shared.ends[1:]:
            change = self.shared.close(draws)
            self._rescale(change.growth, first=draws == self.shared.known_at)
            if change.has_converged:
                self._skipped, draws = self._goes_on - draws, self._goes_on
        if draws == self._num_warmup:
            self._stop_learning()
        until = torch.full_like(schedule.until, draws + 1 if draws < self._num_warmup else self._total)
        counters = counters._replace(draws=torch.full_like(counters.draws, draws))
        self._tell(schedule=schedule._replace(until=until), counters=counters)

    def _observe(self, draw: int) -> None:
        """Let the mass matrix learn from the latest draws."""
        drawn = self.fleet.resting.drawn
        self.shared.observe(draw, drawn.theta, drawn.gradient, drawn.log_density)

    def _statistic(self, name: str) -> Tensor:
        """Return a statistic ``[C]`` of the latest draws."""
        found: Tensor = self.fleet.resting.stats[:, self.stats_names.index(name)]
        return found

    def _resumable(self) -> dict[str, Any]:
        learnt = self.step_size, self._skipped, self.shared.resumable(), self.tuning
        return super()._resumable() | {"learnt": learnt}

    def _resume(self, found: Mapping[str, Any]) -> None:
        super()._resume(found)
        self.step_size, self._skipped, shared, self.tuning = found["learnt"]
        self.shared.resume(shared)


def groups_of_chains(settings: ChainSettings, num_chains: int) -> list[range]:
    """Return the chains that adapt together, the same whether an executor runs them or not."""
    return even_groups(num_chains, settings.num_groups or 1)
