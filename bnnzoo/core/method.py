"""The interface of inference methods, and the context in which a fit runs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.docstrings import with_inherited_parameters
from bnnzoo.engine.choose import Engine
from bnnzoo.engine.value_and_grad import Evaluated

__all__ = [
    "Declared",
    "FitContext",
    "Method",
    "Need",
    "Progress",
    "RunsTogether",
    "Silent",
    "all_rows_read_by",
    "declared",
    "in_batches_of",
    "is_method",
    "spreads",
    "starting_at",
]


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
    known_starts: tuple[LogDensity, Evaluated] | None = None
    """The density and its values at starting points of this seed, from the look that ``fit`` takes at the model."""

    def starts_of(self, density: LogDensity, num_chains: int) -> Evaluated | None:
        """Return the first starting points of a density and its values there, if they are known already."""
        known, points = self.known_starts or (None, None)
        return points if known is density and points is not None and len(points.theta) == num_chains else None


@runtime_checkable
class Method(Protocol):
    """An inference method: a frozen dataclass of hyperparameters, every one with a default."""

    needs: ClassVar[frozenset[Need]]

    def run(self, density: LogDensity, context: FitContext) -> Posterior:
        """Approximate, or draw from, the posterior of ``density``, which holds its data."""
        ...


class Declared:
    """What a method says of itself beyond ``needs`` and ``run``; every method of the library inherits it.

    A method of a user's own need not: it is taken to say what stands here.

    Attributes
    ----------
    parts : str, optional
        The setting that counts chains, members or restarts: parts with starts of their own, which an executor spreads.
    stages : tuple of str
        Settings that hold the methods of which this one is made.
    mode : str, optional
        The one of them that finds the mode around which this method approximates the posterior.
    in_batches : mapping of str to object, optional
        Settings, and the values with which nothing is looked at but mini-batches of ``batch_size`` rows. None: all rows are.
    always_in_batches : bool
        Whether that holds without a ``batch_size``, too.
    by_density : bool
        Whether, without a ``batch_size``, nothing of the data is looked at but the log density and its derivatives: rows are
        neither counted, nor drawn, nor set aside.
    resumable : bool
        Whether a fit can go on from a checkpoint.
    learns_parameters : bool
        Whether parameters of the model that have no prior are learnt.
    unadjusted : bool
        Whether draws have the bias of a step size, or of mini-batches, that no acceptance step corrects.
    """

    parts: ClassVar[str | None] = None
    stages: ClassVar[tuple[str, ...]] = ()
    mode: ClassVar[str | None] = None
    in_batches: ClassVar[Mapping[str, object] | None] = None
    always_in_batches: ClassVar[bool] = False
    by_density: ClassVar[bool] = False
    resumable: ClassVar[bool] = False
    learns_parameters: ClassVar[bool] = False
    unadjusted: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Complete the docstring of a method by the settings that it inherits."""
        super().__init_subclass__(**options)
        cls.__doc__ = with_inherited_parameters(cls)

    def sees_rows(self) -> bool:
        """Tell whether the method, or one of which it is made, looks at more than the log density of all rows.

        Examples
        --------
        >>> import bnnzoo as bz
        >>> bz.NUTS().sees_rows(), bz.MAP(batch_size=10).sees_rows(), bz.DeepEnsemble().sees_rows()
        (False, True, True)
        """
        held = (self._setting(name) for name in self.stages)
        own = not self.by_density or self._setting("batch_size") is not None
        return own or any(declared(each).sees_rows() for each in held if each is not None)

    def in_native_code(self, density: LogDensity) -> bool:
        """Tell whether each part moves by itself in native code, if the model can be compiled."""
        return False

    def reads_all_rows(self) -> str | None:
        """Return what to write so that the method looks at mini-batches only; None if it does.

        Examples
        --------
        >>> import bnnzoo as bz
        >>> bz.MAP().reads_all_rows()
        'write MAP(batch_size=256, polish_steps=0)'
        """
        if self.in_batches is None:
            return "use a method with batch_size=, such as MeanFieldVI(batch_size=256) or SGHMC()"
        changes = [f"{name}={value}" for name, value in self.in_batches.items() if getattr(self, name) != value]
        if self._setting("batch_size") is None and not self.always_in_batches:
            changes.insert(0, "batch_size=256")
        start = self._setting("init")
        if is_method(start) and (reason := declared(start).reads_all_rows()):
            changes.append(f"init={reason.removeprefix('write ')}")
        return f"write {type(self).__name__}({', '.join(changes)})" if changes else None

    def with_batch_size(self, size: int) -> "Declared":
        """Return the method with mini-batches of a loader's size, in the methods of which it is made, too.

        Raises
        ------
        ValueError
            If it has another size already.
        """
        found = {name: self._setting(name) for name in (*self.stages, "init")}
        changed: dict[str, Any] = {
            name: each.with_batch_size(size) for name, each in found.items() if isinstance(each, Declared)
        }
        if self.in_batches is not None:
            if (own := self._setting("batch_size")) not in (None, size):
                raise ValueError(
                    f"{type(self).__name__}(batch_size={own}), but the DataLoader has batches of {size} rows: leave "
                    f"batch_size out, or pass the loader's dataset."
                )
            changed["batch_size"] = size
        return replace(self, **changed) if changed else self  # type: ignore[type-var]  # methods are dataclasses

    def starting_at(self, theta: Tensor, *, keep: bool) -> "Declared":
        """Return the method with a single start ``theta[P]``; with ``keep``, it is taken for a mode already.

        Raises
        ------
        ValueError
            If the method takes no start.
        """
        return _with_init(self, theta)

    def _setting(self, name: str) -> Any:
        return getattr(self, name, None)


def is_method(value: object) -> bool:
    """Tell whether a value is an inference method, and not its class."""
    return hasattr(value, "run") and not isinstance(value, type)


def declared(method: object) -> Declared:
    """Return what a method says of itself: for one that says nothing, the defaults."""
    return method if isinstance(method, Declared) else Declared()


def all_rows_read_by(*methods: object) -> str | None:
    """Return what to write so that none of some methods reads all rows, as :meth:`Declared.reads_all_rows` does."""
    return next((reason for each in methods if (reason := declared(each).reads_all_rows())), None)


def in_batches_of(method: Method, size: int) -> Method:
    """Return a method with mini-batches of one size, as :meth:`Declared.with_batch_size` does."""
    changed: Any = method.with_batch_size(size) if isinstance(method, Declared) else method
    return changed


def starting_at(method: Method, theta: Tensor, *, keep: bool) -> Method:
    """Return a method with a single start ``theta[P]``, as :meth:`Declared.starting_at` does."""
    if not isinstance(method, Declared):
        return _with_init(method, theta)
    started: Any = method.starting_at(theta, keep=keep)
    return started


def _with_init[T](method: T, theta: Tensor) -> T:
    """Return a method with ``theta[P]`` for its setting ``init``.

    Raises
    ------
    ValueError
        If it has none.
    """
    if not (is_dataclass(method) and "init" in {each.name for each in fields(method)}):
        raise ValueError(f"{type(method).__name__}() cannot start at a given point.")
    return replace(method, init=theta[None])  # type: ignore[type-var]  # told from fields


def spreads(method: object) -> bool:
    """Tell whether a method, or one that it holds, has parts that an executor can spread."""
    says = declared(method)
    held = (getattr(method, name, None) for name in (*says.stages, "init"))
    return says.parts is not None or any(is_method(each) and spreads(each) for each in held)


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
