"""Arguments, and entries of mappings, that a prediction leaves out: observations nobody knows yet, and numbers of rows."""

import inspect
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.arguments import parameters_of, positional
from bnnzoo.core.data.described import described
from bnnzoo.core.data.row_source import is_out_of_memory
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.filling import FillingModel
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.reading.conditioned import PredictsGivenData
from bnnzoo.core.reading.outcomes import Unobserved
from bnnzoo.core.types import Data, Model
from bnnzoo.predictive.rows import new_data

__all__ = ["completed"]

type Path = tuple[Any, ...]
"""Where a value stands among the arguments: the name of its argument, and keys of mappings within it."""


@one_at_a_time
def completed(posterior: Posterior, data: Data, named: Mapping[str, Any]) -> tuple[Posterior, Data]:
    """Return arguments for new rows by position, with those that the model needs and that were left out.

    A number of rows is that of the arguments which have rows. Observations are None; if the model cannot take None for them, it
    gets those of the fit, as many as there are new rows, and does not observe them.

    Parameters
    ----------
    posterior : Posterior
    data, named
        Arguments of the model as passed, by position and by name.

    Raises
    ------
    TypeError
        If an argument was left out that is neither.
    ValueError
        If the model computes with observations elsewhere than where it observes them.

    Returns
    -------
    posterior : Posterior
        With a model that does not observe, where it got observations of the fit.
    data : tuple
    """
    density = posterior.density
    if described(density.model).takes_frames:  # a formula knows what it needs of a frame
        return posterior, positional(density.model, data, named, new=True)
    given = _by_name(density, data, named)
    fitted = dict(zip(_names(density.model), density.data, strict=False))
    needed = [each.name for each in parameters_of(density.model) if each.default is inspect.Parameter.empty]
    required = [name for name in needed if name not in given]
    if any(name not in fitted for name in required) or not density.observed:
        return posterior, positional(density.model, data, named)
    missing = {(name,): fitted[name] for name in required} | _entries_left_out(posterior, given, fitted, bool(required))
    if not missing:
        return posterior, positional(density.model, data, named)
    # the number of new rows: that of arguments which had a row for each observation, or else of the fit
    there = dict(_entries(given))
    found = [_rows(there[path]) for path, value in _entries(fitted) if path in there and _has_rows(value, density)]
    num_rows = next((rows for rows in found if rows is not None), density.num_data)
    sizes = {path: num_rows for path, value in missing.items() if _is_size(value, density)}
    outcomes = {path: value for path, value in missing.items() if _has_rows(value, density)}
    if len(sizes) + len(outcomes) < len(missing):
        return posterior, positional(density.model, (), given)
    given = _with_entries(given, sizes)
    unknown = positional(density.model, (), _with_entries(given, dict.fromkeys(outcomes)))
    if isinstance(density.model, PredictsGivenData) or is_out_of_memory(unknown):
        return posterior, unknown
    if not outcomes or _drawn(density, posterior.draws()[0, -1], *unknown) is not None:
        return posterior, unknown
    return _unobserved(posterior, given, outcomes, num_rows) or (posterior, unknown)


def _unobserved(
    posterior: Posterior, given: Mapping[str, Any], outcomes: Mapping[Path, Tensor], num_rows: int
) -> tuple[Posterior, Data] | None:
    """Return a posterior that observes nothing, and arguments with observations of the fit; None if the model fails with these.

    Two orders of these observations must give the same draws: otherwise a lag, a density or a mean of theirs is an input.
    """
    density = posterior.density
    model = density.model.model if isinstance(density.model, FillingModel) else density.model
    wrapped: Model = Unobserved(model, density.observed, tuple(name for name, *within in outcomes if not within))
    wrapped = FillingModel(wrapped) if isinstance(density.model, FillingModel) else wrapped
    theta = posterior.draws()[0, -1]
    places = torch.arange(num_rows, device=density.device)
    found = []
    for order in (places, places.flip(0) + 1):
        placed = {path: value[order % len(value)] for path, value in outcomes.items()}
        data = positional(density.model, (), _with_entries(given, placed))
        drawn = _drawn(replace(density, model=wrapped), theta, *data)
        if drawn is None:
            return None
        found.append((data, drawn))
    (data, one), (_, other) = found
    for name, values in one.items():
        if values.shape != other[name].shape or not bool(((values == other[name]) | values.isnan()).all()):
            written = " and ".join(repr(path[0] + "".join(f"[{key!r}]" for key in path[1:])) for path in outcomes)
            raise ValueError(
                f"The model computes with {written} elsewhere than where it observes {name!r}, so that "
                f"predictions depend on observations: pass them, too, such as those of the fit, or None if the model can take it."
            )
    return _with_model(posterior, wrapped), data


def _drawn(density: LogDensity, theta: Tensor, *raw: Any) -> Mapping[str, Tensor] | None:
    """Return one draw of the observed sites at ``theta[P]``, always of the same random numbers; None if the model fails."""
    try:
        with torch.no_grad(), isolated(0, density.device):
            return density.predictive(theta, *new_data(density, raw))
    except Exception:  # the user's model may raise anything at what it was not written for
        return None


def _with_model(posterior: Any, model: Model) -> Any:
    """Return a posterior, and the components within it, with another model."""
    changed: dict[str, Any] = {}
    for field in fields(posterior):
        value = getattr(posterior, field.name)
        if isinstance(value, LogDensity):
            changed[field.name] = replace(value, model=model)
        elif (
            isinstance(value, tuple)
            and value
            and all(is_dataclass(each) and hasattr(each, "density") for each in value)
        ):
            changed[field.name] = tuple(_with_model(each, model) for each in value)
    return replace(posterior, **changed)


def _by_name(density: LogDensity, given: Data, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments given by name; where one has rows in the place of a number, numbers of rows were left out."""
    names = _names(density.model)
    taken = names[: len(given)]
    if len(given) + len(named) < len(names):
        sizes = [name for name, value in zip(names, density.data, strict=False) if _is_size(value, density)]
        if any(name in sizes and _rows(value) is not None for name, value in zip(taken, given, strict=True)):
            taken = [name for name in names if name not in sizes and name not in named][: len(given)]
    if len(taken) < len(given) or set(taken) & set(named):
        return dict(zip(names, positional(density.model, given, named), strict=False))  # which refuses it
    return dict(zip(taken, given, strict=True)) | dict(named)


def _entries_left_out(
    posterior: Posterior, given: Mapping[str, Any], fitted: Mapping[str, Any], is_needed: bool
) -> dict[Path, Any]:
    """Return what mappings among the arguments lack, by its place: entries of the fit with which the model alone runs."""
    density, there = posterior.density, dict(_entries(given))
    found = {
        path: value
        for path, value in _entries(fitted)
        if len(path) > 1 and path[0] in given and path not in there
        if _is_size(value, density) or _has_rows(value, density)
    }
    if not found or is_needed:
        return found
    runs = _drawn(density, posterior.draws()[0, -1], *positional(density.model, (), given)) is not None
    return {} if runs else found


def _entries(held: Mapping[Any, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in held.items():
        if isinstance(value, dict):
            yield from _entries(value, (*path, key))
        else:
            yield (*path, key), value


def _with_entries(held: Mapping[Any, Any], entries: Mapping[Path, Any]) -> dict[Any, Any]:
    """Return arguments with further entries; mappings among them are copied and keep their kind."""
    found: Any = copy(held)
    for (name, *within), value in entries.items():
        found[name] = _with_entries(found.get(name, {}), {tuple(within): value}) if within else value
    return found


def _rows(value: Any) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is None:
        return len(value) if isinstance(value, list) else None
    return int(shape[0]) if len(shape) else None


def _has_rows(value: Any, density: LogDensity) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == density.num_data


def _is_size(value: Any, density: LogDensity) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == density.num_data


def _names(model: Model) -> list[str]:
    return [parameter.name for parameter in parameters_of(model)]
