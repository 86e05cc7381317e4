"""Chains that a runner of the engine advances, and the draws they have kept."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.program.turns import aside
from bnnzoo.engine.cores import one_arithmetic_thread
from bnnzoo.engine.fleet import Runner
from bnnzoo.engine.reports import EngineLog
from bnnzoo.inference.markov.chain_settings import ChainSettings
from bnnzoo.inference.markov.snapshots import from_arrays, to_arrays

__all__ = ["RunningChains"]


class RunningChains(ABC):
    """What chains of every kind share; a :class:`bnnzoo.inference.markov.protocols.Loop` but for what is abstract here.

    Parameters
    ----------
    settings : ChainSettings
    theta : Tensor
        Starting points ``[C, P]``.
    keys : Tensor [C, num_streams]
        Of the random streams; see :func:`bnnzoo.inference.markov.noise.keys_of_chains`.

    Attributes
    ----------
    fleet : Runner
        The chains, once a subclass has made them.
    """

    stats_names: tuple[str, ...]
    fleet: Runner

    def __init__(self, settings: ChainSettings, theta: Tensor, keys: Tensor) -> None:
        self.log, self.num_chains = EngineLog(), len(theta)
        self._num_warmup, self._total = settings.num_warmup, settings.num_warmup + settings.num_draws
        self.draws = theta.new_zeros(self.num_chains, settings.num_draws, theta.shape[1])
        self.stats = torch.zeros(self.num_chains, settings.num_draws, len(self.stats_names), dtype=torch.float64)
        self._num_kept = torch.zeros(self.num_chains, dtype=torch.int64)
        self._seconds = math.inf  # that the chains ran the last time
        self.keys = keys.to(theta.device)

    @property
    def row(self) -> tuple[Tensor, ...]:
        """What is kept of a draw: tensors like it."""
        num_params, num_stats = self.draws.shape[2], self.stats.shape[2]
        return self.draws.new_zeros(num_params), self.stats.new_zeros(num_stats).to(self.keys.device)

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` of each chain, warm-up included, that have reached ``draws``."""
        return torch.minimum(self.fleet.resting.counters.draws.cpu(), self._num_warmup + self._num_kept)

    def advance(self) -> None:
        """Run the chains for a while, keep their draws, and do what they wait for."""
        native = self.fleet.how == "compiled"
        # torch's other threads would keep the cores of the chains busy
        with one_arithmetic_thread() if native else nullcontext():
            try:
                with self.log.timed("running"), aside(self._seconds) if native else nullcontext():
                    began = time.perf_counter()
                    self.fleet.advance()
                    self._seconds = time.perf_counter() - began
            finally:  # an interrupt waits for the chains under way in native code: their draws are kept, too
                self._gather()
            self._attend()

    def _gather(self) -> None:
        """Take the rows that the chains have kept."""
        self.fleet.gather((self.draws, self.stats), self._num_kept)

    def snapshot(self) -> dict[str, Any]:
        """Return everything :meth:`restore` needs to continue with the very next step, as arrays."""
        return to_arrays(self._resumable())

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue where the same chains were when ``snapshot`` was taken, by whatever engine."""
        found = from_arrays(snapshot, like=self._resumable())
        self._num_kept = found["kept"]
        self._resume(found)

    def _resumable(self) -> dict[str, Any]:
        return {"moving": self.fleet.moving, "resting": self.fleet.resting, "kept": self._num_kept}

    def _resume(self, found: Mapping[str, Any]) -> None:
        self.fleet.write(found["moving"], found["resting"])

    @abstractmethod
    def _attend(self) -> None:
        """Do what chains wait for, such as the end of a window of warm-up."""
