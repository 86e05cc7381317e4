"""Many fits of one model and method, which share what is read, traced and compiled."""

import inspect
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.data.arguments import argument_names, parameters_of, positional
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.described import described
from bnnzoo.core.data.frame_labels import columns_of, refuse_unaligned_rows
from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.data.row_source import row_source
from bnnzoo.core.method import FitContext, Method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.kinds import first_of_kind, of_kind, shapes_of
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import usable_device
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.reading.reading import conformed
from bnnzoo.core.types import Data, Model, Whole
from bnnzoo.engine.choose import FITS_TOGETHER, Engine, asked_for, next_number_together, one_thread_pays
from bnnzoo.engine.cores import one_arithmetic_thread
from bnnzoo.engine.fallbacks import warned_once
from bnnzoo.engine.fits import fits_to_come
from bnnzoo.engine.value_and_grad import Evaluated
from bnnzoo.inference.config import run_together
from bnnzoo.inference.fit import checked_starts, fitted, num_starts, read_with_checks, refuse_bad_call, warn_of_troubles

__all__ = ["ManyFits", "fit_many", "in_blocks", "seed_of_fit"]

ASSUMED_NUM_FITS = 1000
"""Fits that are expected where data sets are not counted."""


def fit_many(
    model: Model,
    method: Method,
    datasets: Iterable[Any],
    *,
    seed: Whole = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    engine: str = "auto",
) -> Iterator[Posterior]:
    """Fit a model to one data set after another, and yield the posteriors in order, as they are made.

    The model is read, checked, traced and compiled once for each shape of the data. Chains of NUTS and HMC run side by side, each
    with its own data, and so do fits that spend most of their time in native code: a thousand small fits take seconds. Each
    posterior is that of ``fit`` on the same engine with the seed ``seed_of_fit(seed, number)``, where ``number`` counts data sets
    from zero: bit by bit for chains of NUTS and HMC, otherwise to rounding, as how many fits are to come decides what is compiled
    and what is computed for several points at a time. A model that does otherwise with other data of the same shapes, as by a
    branch or a prior that the data decide, is recognised at one point and read again.

    Parameters
    ----------
    model : callable
        As for :func:`bnnzoo.fit`.
    method : Method
    datasets : iterable
        The arguments of the model for each fit, as a tuple, or the only one.
    seed : int
    device, dtype, engine
        As for :func:`bnnzoo.fit`.

    Yields
    ------
    Posterior

    Raises
    ------
    ModelError, DataError, TypeError, ValueError
        As :func:`bnnzoo.fit` does, when the fit in question is due: those before it are yielded first.

    Warns
    -----
    FitWarning
        As :func:`bnnzoo.fit` does.

    Examples
    --------
    >>> import pyro
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model(y):
    ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with pyro.plate("data", len(y)):
    ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> datasets = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])]
    >>> [round(float(each.loc), 3) for each in bz.fit_many(model, bz.Laplace(), datasets, dtype=torch.float64)]
    [1.0, 3.0]
    """
    refuse_bad_call("fit_many", model, method, seed, dtype)
    shape = getattr(datasets, "shape", None)
    if shape is not None or not isinstance(datasets, Iterable):
        kind = "tensor" if isinstance(datasets, Tensor) else type(datasets).__name__
        found = kind if shape is None else f"{kind} of shape {tuple(shape)}"
        raise TypeError(
            f"fit_many(datasets=...) is one {found}. Write a list of data sets, each a tuple of the model's arguments, such as "
            f"[(x, y) for y in simulated]."
        )
    number = len(datasets) if isinstance(datasets, Sized) else ASSUMED_NUM_FITS
    fits = ManyFits(model, method, number, device=device, dtype=dtype, engine=engine)
    return _one_by_one(fits, iter(datasets), int(seed))


def _one_by_one(fits: "ManyFits", datasets: Iterator[Any], seed: int) -> Iterator[Posterior]:
    first = 0
    for block in in_blocks(each if isinstance(each, tuple) else (each,) for each in datasets):
        found, error = fits.up_to_an_error(block, [seed_of_fit(seed, first + i) for i in range(len(block))], first)
        yield from found
        if error is not None:
            raise error
        first += len(block)


def in_blocks[Item](items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield what fits are made of in blocks, each for fits that run side by side: larger ones where a block is quickly done.

    Chains of NUTS and HMC do not depend on what runs beside them; other fits may by rounding.
    """
    left, size = iter(items), FITS_TOGETHER
    while block := list(islice(left, size)):
        began = time.perf_counter()
        yield block
        size = next_number_together(size, time.perf_counter() - began)


def seed_of_fit(seed: int, number: int) -> int:
    """Return the seed of one of many fits.

    Examples
    --------
    >>> seed_of_fit(0, 3), seed_of_fit(2, 0)
    (3, 2000006)
    """
    return (seed * 1_000_003 + number) % 2**62


@contextmanager
def _numbered(first: int | None, place: int) -> Iterator[None]:
    """Say in an error which of many data sets it is about."""
    try:
        yield
    except (TypeError, ValueError) as error:  # DataError and ModelError among them
        kind = next((each for each in (DataError, ModelError) if isinstance(error, each)), type(error))
        if first is None or kind not in (DataError, ModelError, TypeError, ValueError):
            raise  # others may take other arguments
        raise kind(f"Data set {first + place}, counted from 0: {error}") from error


def _refuse_no_tuple(model: Model, data: Data) -> None:
    """Refuse a mapping or a list where a model takes several arguments, which are to be a tuple."""
    if (
        len(data) != 1
        or not isinstance(data[0], dict | list)
        or described(model).from_data(data, new=False) is not None
    ):
        return
    held, parameters = data[0], parameters_of(model)
    needed = {each.name for each in parameters if each.default is inspect.Parameter.empty}
    names = [each.name for each in parameters]
    by_name = isinstance(held, dict) and len(names) > 1 and needed <= set(held) <= set(names)
    if not by_name and len(needed) < 2:
        return  # one argument may be a mapping or a sequence
    found = (
        f"dict with the keys {', '.join(map(repr, held))}" if isinstance(held, dict) else f"list of length {len(held)}"
    )
    raise TypeError(
        f"It is a {found}, and the model takes {', '.join(map(repr, names))}. Write each of datasets as a tuple of the model's "
        f"arguments: ({', '.join(names)})."
    )


class ManyFits:
    """Fits of one model by one method to any data: those of one kind share what is read, traced and compiled.

    Parameters
    ----------
    model : callable
    method : Method
    number : int
        How many there will be, which decides whether compiling pays.
    device, dtype, engine
        As for :func:`bnnzoo.fit`.
    judged : bool
        Whether each approximation is held against its posterior, as :func:`bnnzoo.fit` does. Without it the records of fits alone
        are read, which costs nothing: for those who judge the draws themselves.
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        number: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        engine: str = "auto",
        judged: bool = True,
    ) -> None:
        self._model, self._method, self._number = model, method, number
        self._device, self._dtype = usable_device(device), dtype or torch.get_default_dtype()
        self._engine: Engine = asked_for(engine)
        self._judged = judged
        self._known: dict[Hashable, LogDensity] = {}

    def __call__(self, datasets: Sequence[Data], seeds: Sequence[int], first: int | None = None) -> list[Posterior]:
        """Return the posterior of each data set, given by the arguments of the model.

        Parameters
        ----------
        datasets : sequence of tuple
        seeds : sequence of int
        first : int, optional
            Number of the first data set, by which errors name theirs.
        """
        found, error = self.up_to_an_error(datasets, seeds, first)
        if error is not None:
            raise error
        return found

    def up_to_an_error(
        self, datasets: Sequence[Data], seeds: Sequence[int], first: int | None = None
    ) -> tuple[list[Posterior], Exception | None]:
        """Return the posteriors before the first data set whose fit fails, and the error; None if none does.

        Parameters
        ----------
        datasets, seeds, first
            As for a call.
        """
        with warned_once(), fits_to_come(self._number if self._engine in ("auto", "native") else 1):
            shared, error = self._of_known_kinds(datasets, seeds, first)
            found: list[Posterior] = []
            for i, posterior in enumerate(shared):
                try:
                    found.append(self._alone(datasets[i], seeds[i], first, i) if posterior is None else posterior)
                except Exception as its_own:  # whatever it is, it is due after those before
                    return found, its_own
            return found, error

    def _alone(self, data: Data, seed: int, first: int | None, place: int) -> Posterior:
        with _numbered(first, place):
            given = positional(self._model, data, {})
            posterior = fitted(
                self._model, self._method, given, int(seed), self._dtype, self._device, engine=self._engine
            )
            warn_of_troubles(posterior, evaluate=self._judged)
            return posterior

    @one_at_a_time
    def _of_known_kinds(
        self, datasets: Sequence[Data], seeds: Sequence[int], first: int | None
    ) -> tuple[list[Posterior | None], Exception | None]:
        """Return the posteriors of data whose kind is known, or comes to be known, up to an error; None if fitted alone."""
        arguments = [self._arguments(data) for data in datasets]
        kinds: list[Hashable | None] = []
        error: Exception | None = None
        try:
            for i, (given, seed) in enumerate(zip(arguments, seeds, strict=True)):
                with _numbered(first, i):
                    if first is not None:
                        _refuse_no_tuple(self._model, given.given)
                    kinds.append(self._kind_of(given, seed))
        except Exception as found_first:  # whatever it is, it is due after the fits before
            error = found_first
        found: list[Posterior | None] = [None] * len(kinds)
        for kind in dict.fromkeys(each for each in kinds if each is not None):
            places = [i for i, each in enumerate(kinds) if each == kind]
            fits = [(i, self._of_kind(kind, arguments[i], seeds[i])) for i in places]
            alike = [(i, each) for i, each in fits if each is not None]
            with _threads_for(self._known[kind]):
                made, place, failed = self._together_up_to_an_error(alike, first)
            for (i, _), posterior in zip(alike, made, strict=False):
                found[i] = posterior
            if failed is not None:
                found, kinds, error = found[:place], kinds[:place], failed
        for each in found:
            if each is not None:
                with _threads_for(each.density):
                    warn_of_troubles(each, evaluate=self._judged)
        return found, error

    def _together_up_to_an_error(
        self, fits: Sequence[tuple[int, tuple[LogDensity, FitContext]]], first: int | None
    ) -> tuple[list[Posterior], int, Exception | None]:
        """Return the posteriors of fits at some places; after an error one by one, which finds the place that it is due."""
        try:
            return run_together(self._method, [each for _, each in fits]), 0, None
        except Exception:
            if first is None:
                raise
            made: list[Posterior] = []
            for place, each in fits:
                try:
                    with _numbered(first, place):
                        made += run_together(self._method, [each])
                except Exception as its_own:
                    return made, place, its_own
            return made, 0, None

    def _arguments(self, data: Data) -> "_Arguments":
        try:
            given = positional(self._model, data, {})
            refuse_unaligned_rows(given, argument_names(self._model, len(given)))
            if row_source(given, self._dtype, self._device) is not None:
                return _Arguments(given, None)
            return _Arguments(given, as_tensors(given, self._dtype, self._device, owned=True))
        except (DataError, TypeError):
            return _Arguments(data, None)

    def _kind_of(self, arguments: "_Arguments", seed: int) -> Hashable | None:
        """Return what stands for the kind of data, which are read with all checks if it is new; None if it is not shared."""
        if arguments.tensors is None:
            return None
        kind = shapes_of(arguments.tensors)
        if kind not in self._known:
            method, density, first, _ = read_with_checks(
                self._method, self._model, arguments.given, self._dtype, self._device
            )
            if type(density) is not LogDensity or method is not self._method:
                return None
            checked_starts(method, density, first, seed)
            self._known[kind] = first_of_kind(density)
        return kind

    def _of_kind(self, kind: Hashable, arguments: "_Arguments", seed: int) -> tuple[LogDensity, FitContext] | None:
        """Return density and context of a fit of a known kind; None if the model does otherwise with these data."""
        known = self._known[kind]
        start = known.init(num_starts(self._method), seed)
        found = of_kind(known, conformed(arguments.tensors or (), known.data), start)
        if found is None:
            return None
        density, value, gradient = found
        columns = columns_of(arguments.given, argument_names(self._model, len(arguments.given)))
        known_starts = density, Evaluated(start.to(gradient), value, gradient)
        return density, FitContext(seed, engine=self._engine, columns=columns, known_starts=known_starts)


def _threads_for(density: LogDensity) -> AbstractContextManager[None]:
    return one_arithmetic_thread() if one_thread_pays(density.num_params, density.num_data) else nullcontext()


class _Arguments(NamedTuple):
    """The arguments of the model as they are given, and as tensors: None for what is not in memory, and what a fit refuses."""

    given: Data
    tensors: Data | None
