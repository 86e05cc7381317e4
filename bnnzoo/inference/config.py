"""A method's settings as plain values, and how a posterior learns which fit it came from."""

import json
import time
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from bnnzoo.core.method import FitContext, Method, RunsTogether, declared, is_method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Mixture, Posterior
from bnnzoo.core.posterior.stored import Stored
from bnnzoo.core.program.turns import aside, one_at_a_time, seconds_aside
from bnnzoo.core.settings import IF_GIVEN
from bnnzoo.engine.choose import OneByOneError, threads_pay_for_fits
from bnnzoo.engine.cores import in_threads
from bnnzoo.engine.lowered import untraced
from bnnzoo.engine.reports import Stopwatch, watched

__all__ = ["config_of", "run_method", "run_together", "settings_as_json"]


def run_method(method: Method, density: LogDensity, context: FitContext) -> Posterior:
    """Run a method and add to its posterior what no method needs to say itself: its name, settings, seed and wall time."""
    began = time.perf_counter()
    with watched() as watch, untraced(context.engine == "python"):
        posterior = method.run(density, context)
    return _complete(posterior, method, context, time.perf_counter() - began, watch)


def run_together(method: Method, fits: Sequence[tuple[LogDensity, FitContext]]) -> list[Posterior]:
    """Run a method as :func:`run_method` does for several fits of one kind, together where it can; seconds are shared evenly."""
    began = time.perf_counter()
    try:
        with watched() as watch:
            found = method.run_together(fits) if isinstance(method, RunsTogether) and len(fits) > 1 else None
    except OneByOneError:
        found = None
    if found is None:
        return _side_by_side(method, fits)
    seconds = (time.perf_counter() - began) / len(fits)
    watch.tracing, watch.compiling = watch.tracing / len(fits), watch.compiling / len(fits)
    return [_complete(each, method, context, seconds, watch) for each, (_, context) in zip(found, fits, strict=True)]


def _side_by_side(method: Method, fits: Sequence[tuple[LogDensity, FitContext]]) -> list[Posterior]:
    """Run a method for each fit: one after the other, and on as many threads as there are cores once most of a fit is native.

    Threads take turns with all that is Python. What they find does not depend on their number.
    """
    found: dict[int, Posterior] = {}
    contexts = [copy_context() for _ in fits]

    def run(place: int) -> None:
        found[place] = contexts[place].run(one_at_a_time(run_method), method, *fits[place])

    for place in range(len(fits)):
        began, before = time.perf_counter(), seconds_aside()
        run(place)
        if threads_pay_for_fits(seconds_aside() - before, time.perf_counter() - began):
            break
    with aside():
        in_threads(run, range(len(found), len(fits)))
    return [found[place] for place in range(len(fits))]


def _complete(posterior: Posterior, method: Method, context: FitContext, seconds: float, watch: Stopwatch) -> Posterior:
    engine = posterior.info.engine or watch.report(seconds)
    prepared = 0.0 if engine is None else engine.tracing + engine.compiling  # that of chains on other threads, too
    info = replace(
        posterior.info,
        method=type(method).__name__,
        config=config_of(method) | dict(posterior.info.config),
        seed=context.seed,
        seconds=seconds,
        compiling=min(seconds, max(watch.seconds, prepared)),
        engine=engine,
        columns=context.columns,
        unadjusted=declared(method).unadjusted,
    )
    if isinstance(posterior, Mixture):
        return replace(posterior, info=info, components=tuple(_with(each, info) for each in posterior.components))
    return _with(posterior, info)


def _with[P: Posterior](posterior: P, info: FitInfo) -> P:
    stamped: P = replace(posterior, info=info)  # type: ignore[type-var]  # posteriors are dataclasses
    return stamped


def config_of(method: object) -> dict[str, Any]:
    """Return the settings of a method as values JSON knows; methods and settings held by it are nested.

    A field with the metadata of :data:`bnnzoo.core.settings.IF_GIVEN` is left out where it is None.

    Examples
    --------
    >>> from bnnzoo.inference.markov.hamiltonian.nuts import NUTS
    >>> config_of(NUTS(num_chains=2))["num_chains"]
    2
    """
    if not is_dataclass(method):
        raise TypeError(f"A method is a frozen dataclass of settings, but {type(method).__name__} is not a dataclass.")
    given = ((field, getattr(method, field.name)) for field in fields(method))
    return {field.name: _plain(value) for field, value in given if value is not None or field.metadata != IF_GIVEN}


def settings_as_json(method: Method) -> str:
    """Return a method's name and settings as JSON, by which files of results tell methods apart."""
    return json.dumps({"method": type(method).__name__, **config_of(method)})


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_method(value) and is_dataclass(value):
        return {"method": type(value).__name__, **config_of(value)}
    if is_dataclass(value) and not isinstance(value, type | Stored):
        return {"class": type(value).__name__, **config_of(value)}
    return getattr(value, "__name__", type(value).__name__)
