"""The interface of inference methods, and the context in which a fit runs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from bnnzoo.core.consistency import Evaluated
from bnnzoo.core.density import LogDensity
from bnnzoo.core.posterior import Posterior
from bnnzoo.engine.choose import Engine

__all__ = ["FitContext", "Method", "Need", "Progress", "RunsTogether", "Silent"]


class Need(Enum):
    """What a method needs of a model beyond continuous latent variables."""

    NETWORK = "the layers of a network"
    LIKELIHOOD = "a likelihood with rows"


@runtime_checkable
class Progress(Protocol):
    """Receives a method's progress."""

    def start(self, description: str, total: int) -> None: ...
    def update(self, step: int, **fields: float) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """A :class:`Progress` that reports nothing."""

    def start(self, description: str, total: int) -> None:
        """Ignore the start of a stage."""

    def update(self, step: int, **fields: float) -> None:
        """Ignore a step."""

    def stop(self) -> None:
        """Ignore the end."""


@dataclass(frozen=True)
class FitContext:
    """How a fit is run, as opposed to what it computes: the arguments of ``fit`` besides model, method and data."""

    seed: int = 0
    progress: Progress = field(default_factory=Silent)
    executor: Executor | None = None
    checkpoint: Path | None = None
    engine: Engine = "auto"
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    looked_at: tuple[LogDensity, Evaluated] | None = None
    """The density and its values at starting points of this seed, from the look that ``fit`` takes at the model."""

    def starts_of(self, density: LogDensity, num_chains: int) -> Evaluated | None:
        """Return the first starting points of a density and its values there, if they are known already."""
        known, points = self.looked_at or (None, None)
        return points if known is density and points is not None and len(points.theta) == num_chains else None


@runtime_checkable
class Method(Protocol):
    """An inference method: a frozen dataclass of hyperparameters, every one with a default."""

    needs: ClassVar[frozenset[Need]]

    def run(self, density: LogDensity, context: FitContext) -> Posterior:
        """Approximate, or draw from, the posterior of ``density``, which holds its data."""
        ...


@runtime_checkable
class RunsTogether(Method, Protocol):
    """A method that makes many fits of one kind at once, in less time than one after the other."""

    def run_together(self, fits: Sequence[tuple[LogDensity, FitContext]]) -> Sequence[Posterior]:
        """Return for each fit what ``run`` would.

        Raises
        ------
        OneByOneError
            If they have to be made one by one.
        """
        ...
