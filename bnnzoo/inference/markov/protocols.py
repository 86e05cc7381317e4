"""Interface of samplers, whose chains run here or on workers, are interrupted and resumed."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.reports import EngineLog
from bnnzoo.inference.markov.hamiltonian.kernel import Metric

__all__ = ["Loop", "Sampler", "Scaled", "SeparateChains"]


@runtime_checkable
class Loop(Protocol):
    """Running chains, all in one batch or each on its own; see :class:`bnnzoo.inference.markov.running.RunningChains`.

    ``draws[C, S, P]`` and ``stats[C, S, K]`` fill up as ``advance`` is called; ``counts[C]`` is the number of draws of each
    chain so far, warm-up included. ``num_rejected`` counts proposed points at which the log density could not be computed, in
    warm-up as well. ``progress_fields`` are the numbers a progress bar shows. ``tuned`` is what the chains have learnt,
    ``[C, ...]`` each, and ``adopt`` replaces it before the first draw. ``log`` takes down how the arithmetic is run.
    """

    @property
    def draws(self) -> Tensor: ...
    @property
    def stats(self) -> Tensor: ...
    @property
    def stats_names(self) -> tuple[str, ...]: ...
    @property
    def log(self) -> EngineLog: ...
    @property
    def num_chains(self) -> int: ...
    @property
    def num_gradients(self) -> int: ...
    @property
    def num_rejected(self) -> int: ...
    @property
    def counts(self) -> Tensor: ...
    @property
    def tuned(self) -> Mapping[str, Tensor]: ...
    def adopt(self, tuning: Mapping[str, Tensor]) -> None: ...
    def advance(self) -> None: ...
    def progress_fields(self) -> dict[str, float]: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, snapshot: Mapping[str, Any]) -> None: ...


@runtime_checkable
class SeparateChains(Loop, Protocol):
    """Chains that have nothing in common, so that those of several fits run side by side."""

    def counted(self, chains: slice) -> tuple[int, int]:
        """Return the numbers of gradients and of rejected points of some chains."""
        ...


@runtime_checkable
class Scaled(Protocol):
    """Chains that begin in units of their own."""

    def begin_with(self, metric: Metric) -> None:
        """Take mass matrices ``[C, ...]`` as far as the chains have such, and find step sizes anew, before the first draw."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """What starts a loop; it is sent to workers.

    ``groups`` splits the chains into batches: ``spread`` says whether an executor runs them side by side. ``begin`` starts one.
    """

    def groups(self, num_chains: int, spread: bool) -> list[range]: ...
    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> Loop: ...
