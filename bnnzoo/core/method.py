"""The interface of inference methods, and the context in which a fit runs."""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from bnnzoo.core.density import LogDensity
from bnnzoo.core.posterior import Posterior

__all__ = ["FitContext", "Method", "Need", "Progress", "Silent"]


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
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@runtime_checkable
class Method(Protocol):
    """An inference method: a frozen dataclass of hyperparameters, every one with a default."""

    needs: ClassVar[frozenset[Need]]

    def run(self, density: LogDensity, context: FitContext) -> Posterior:
        """Approximate, or draw from, the posterior of ``density``, which holds its data."""
        ...
