"""Shared parts of loops over chains: random streams, kept draws, compiled steps, and snapshots."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.lowered import LoopStep, looped_value_and_grad, tensors_of
from bnnzoo.engine.reports import EngineLog
from bnnzoo.inference.markov.adaptation import window_ends
from bnnzoo.inference.markov.chain_settings import ChainSettings, typical_num_steps
from bnnzoo.inference.markov.snapshots import from_arrays, to_arrays
from bnnzoo.inference.markov.streams import ChainStreams

__all__ = ["INITIAL_STEP_SIZE", "ChainLoop", "ValueAndGrad"]

type ValueAndGrad = Callable[..., tuple[Tensor, Tensor]]

INITIAL_STEP_SIZE = 0.1
"""Where the search for a step size begins."""


class ChainLoop(ABC):
    """Chains in one batch, with all their state; see :class:`bnnzoo.inference.markov.protocols.Loop`.

    A subclass keeps everything that changes in named tuples and returns them from ``_state``; a snapshot consists of their
    leaves, the random streams, and the number of calls of each compiled step.

    Parameters
    ----------
    density : LogDensity
    settings : ChainSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit: each chain has a random stream of its own.
    num_uniforms : int
        Uniform random numbers that a chain uses at a time.
    adapted_draws : int, optional
        Draws of warm-up over which scales are adapted. Default: all of them.
    """

    kind: str
    stats_names: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        density: LogDensity,
        settings: ChainSettings,
        theta: Tensor,
        seed: int,
        first_chain: int,
        *,
        num_uniforms: int,
        adapted_draws: int | None = None,
    ) -> None:
        self.density, self._num_warmup, self._num_draws = density, settings.num_warmup, settings.num_draws
        self.num_chains, self.num_params = theta.shape
        self.streams = ChainStreams(seed, first_chain, self.num_chains, num_uniforms, density.dtype, density.device)
        self.draws = theta.new_zeros(self.num_chains, self._num_draws, self.num_params)
        self.stats = torch.zeros(self.num_chains, self._num_draws, len(self.stats_names), dtype=torch.float64)
        self._ends = window_ends(self._num_warmup if adapted_draws is None else adapted_draws)
        self.log = EngineLog()
        self._tensors = tensors_of(density.data)  # those within mappings and sequences, too

    @property
    @abstractmethod
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` of each chain, warm-up included."""

    @property
    @abstractmethod
    def num_leaps(self) -> int:
        """Number of gradient steps that every chain has taken."""

    @property
    def num_gradients(self) -> int:
        """Number of gradients that all chains have evaluated together."""
        return self.num_leaps * self.num_chains

    @property
    @abstractmethod
    def num_rejected(self) -> int:
        """Number of proposed points at which the log density could not be computed."""

    @property
    @abstractmethod
    def tuned(self) -> dict[str, Tensor]:
        """What the chains have learnt, ``[C, ...]`` each."""

    @abstractmethod
    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Replace what the chains would learn, before the first draw, by what others have learnt."""

    @abstractmethod
    def advance(self) -> None:
        """Run the chains until at least one of them has its next draw."""

    @abstractmethod
    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""

    def snapshot(self) -> dict[str, Any]:
        """Return everything :meth:`restore` needs to continue with the very next step, as arrays."""
        return to_arrays(self._resumable())

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue where a loop of the same chains was when ``snapshot`` was taken."""
        found = from_arrays(snapshot, like=self._resumable())
        self._resume(found["state"])
        self.streams.restore(found["streams"])
        for step, num_calls in zip(self._steps, found["calls"], strict=True):
            step.num_calls = num_calls

    @property
    @abstractmethod
    def _steps(self) -> tuple[LoopStep, ...]:
        """The steps that compile themselves after a number of calls."""

    @property
    @abstractmethod
    def _state(self) -> tuple[Any, ...]:
        """The named tuples that hold everything that changes."""

    @abstractmethod
    def _resume(self, state: tuple[Any, ...]) -> None:
        """Replace the named tuples."""

    def _resumable(self) -> dict[str, Any]:
        calls = [step.num_calls for step in self._steps]
        return {"state": self._state, "streams": self.streams.state(), "calls": calls}

    def _lowered(self, make: Callable[[ValueAndGrad], Callable[..., Any]], *args: Any) -> LoopStep:
        """Return the gradient step of all chains, built by ``make`` from the batched density, called once per step."""
        total = self._num_warmup + self._num_draws
        return LoopStep(
            make(self.density.batched_value_and_grad),
            *(*args, *self.density.data),
            fallback=make(looped_value_and_grad(self.density.log_joint)),
            at_least=typical_num_steps(self.num_params) * total,
            log=self.log,
        )

    def _keep(self, chains: Tensor, theta: Tensor, stats: Tensor) -> None:
        """Write down the next draws ``theta[N, P]`` and statistics ``[N, K]`` of some chains, unless they belong to warm-up."""
        place = self.counts[chains] - self._num_warmup
        kept = (place >= 0) & (place < self._num_draws)
        self.draws[chains[kept], place[kept]] = theta[kept]
        self.stats[chains[kept], place[kept]] = stats[kept].double()
