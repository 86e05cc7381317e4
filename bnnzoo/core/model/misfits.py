"""Errors of a model on its data in one sentence, in place of torch's, where shapes tell the reason."""

import linecache
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from torch import Tensor, nn

from bnnzoo.core.data.arguments import argument_names
from bnnzoo.core.data.codes import code_out_of_range
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.minibatch import unequal_rows
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.failures import is_numerical

__all__ = ["explaining_misfits", "is_about_types", "is_own", "refuse_no_rows"]

ABOUT_SHAPES = ("shape", "size", "dimension", "broadcast", "dtype", "out of range", "out of bounds")
"""Words by which an error of torch or Pyro is taken to be about shapes or types of the data."""

ABOUT_TYPES = (
    "dtype",
    "scalar type",
    "data type",
    "can't be cast",
    "indices must be",
    "must be long",
    "'long'",
    "'float'",
    "bool",
)
"""Words by which an error of torch is taken to be about types alone."""

SELECTED_BY_NAME = re.compile(r"(\w+)(\[[\"'][^\"']*[\"']\])")
"""A column that is selected by name."""

PASSING_ON = ("__torch_function__", "__torch_dispatch__")
"""Functions through which torch calls its own operations, so that errors pass them without being theirs."""


@contextmanager
def explaining_misfits(model: Model, data: Data) -> Iterator[None]:
    """Say which argument does not fit where a model fails on ``data``; errors that say so themselves pass.

    Raises
    ------
    DataError
        Naming the argument, its shape and the one that is needed.
    """
    try:
        yield
    except (ModelError, DataError):
        raise
    except KeyError as error:
        if reason := _by_missing_entry(error, data, argument_names(model, len(data))):
            raise DataError(reason) from None
        raise
    except AttributeError as error:
        if reason := _by_name(error, data, argument_names(model, len(data))):
            raise DataError(reason) from None
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, ZeroDivisionError) as error:
        if is_numerical(error):
            raise
        names = argument_names(model, len(data))
        if reason := _by_name(error, data, names) or code_out_of_range(error, data, names):
            raise DataError(reason) from None
        if reason := _by_layer(error, data, names) or (None if is_own(error) else _no_rows(data, names)):
            raise DataError(reason) from None
        if reason := unequal_rows(data) or (None if is_own(error) else _by_shapes(error, data, names)):
            raise DataError(reason) from error
        raise


def is_about_types(error: BaseException) -> bool:
    """Tell whether a model failed on the types of its data, whole numbers where it needs others or the reverse.

    Sentences that name an argument by themselves are about more than that.
    """
    if isinstance(error, DataError) and error.__cause__ is None:
        return False
    said = str(error.__cause__ or error).lower()
    return any(word in said for word in ABOUT_TYPES)


def is_own(error: BaseException) -> bool:
    """Tell whether bnnzoo raised an error itself, in words of its own."""
    frames = [frame for frame in _frames(error.__traceback__) if frame.f_code.co_name not in PASSING_ON]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("bnnzoo.")


def refuse_no_rows(model: Model, data: Data) -> None:
    """Refuse data all of which are without rows.

    Raises
    ------
    DataError
        Naming the first argument.
    """
    arrays = [value for value in data if isinstance(value, Tensor) and value.ndim]
    if arrays and not any(len(value) for value in arrays):
        raise DataError(_no_rows(data, argument_names(model, len(data))))


def _no_rows(data: Data, names: Sequence[str]) -> str | None:
    for place, value in enumerate(data):
        if isinstance(value, Tensor) and value.ndim and not len(value):
            return (
                f"Data refused: {_argument(place, names)} has no rows (shape {list(value.shape)}). Pass at least one "
                f"observation."
            )
    return None


def _by_missing_entry(error: KeyError, data: Data, names: Sequence[str]) -> str | None:
    """Name the mapping among the arguments that lacks an entry, if there is one only."""
    key = error.args[0] if error.args else None
    lacking = [(name, held) for name, held in zip(names, data, strict=True) if isinstance(held, dict)]
    if len(lacking) != 1 or key in lacking[0][1]:
        return None
    [(name, held)] = lacking
    return (
        f"The model asks for {name}[{key!r}], and {name!r} holds {', '.join(map(repr, held)) or 'nothing'}. Add the entry; an "
        f"observation that is not known may be None."
    )


def _by_name(error: Exception, data: Data, names: Sequence[str]) -> str | None:
    """Say that frames and labelled arrays reach the model as tensors, where it asks one for a column or method by name."""
    if isinstance(error, AttributeError):
        held, asked = error.obj, f".{error.name}"
    else:
        lines = ((each.f_locals, SELECTED_BY_NAME.search(source)) for each, source in _sources(error.__traceback__))
        held, asked = next(((held.get(found[1]), found[2]) for held, found in lines if found), (None, ""))
    if not isinstance(held, Tensor):
        return None
    places = [place for place, value in enumerate(data) if value is held]
    if not places:
        return None
    by_name = f" Pass dict({names[places[0]]}) for columns by name." if held.ndim == 2 else ""
    return (
        f"The model asks {_argument(places[0], names)} for {asked}, but frames and arrays reach it as tensors, this one of shape "
        f"{list(held.shape)}.{by_name or " Write torch's operations."}"
    )


def _by_shapes(error: BaseException, data: Data, names: Sequence[str]) -> str | None:
    """Repeat what torch or Pyro say of shapes, with the shapes of the data."""
    said = str(error).strip().split("\n")[0].rstrip(".")
    arrays = [(name, value) for name, value in zip(names, data, strict=True) if isinstance(value, Tensor)]
    if not arrays or not any(word in said.lower() for word in ABOUT_SHAPES):
        return None
    shapes = ", ".join(f"{name} {list(v.shape)} ({str(v.dtype).removeprefix('torch.')})" for name, v in arrays)
    return f"The model failed on its data, {shapes}: {said}. Compare these shapes with those that the model is written for."


def _by_layer(error: BaseException, data: Data, names: Sequence[str]) -> str | None:
    """Explain the failure of a layer of a network by the shape of what it was given."""
    for frame in reversed(list(_frames(error.__traceback__))):
        layer, given = frame.f_locals.get("self"), frame.f_locals.get("input")
        if isinstance(layer, nn.Linear):
            width, dim = layer.in_features, -1
        elif isinstance(layer, nn.modules.conv._ConvNd):
            width, dim = layer.in_channels, -len(layer.kernel_size) - 1
        elif isinstance(layer, nn.RNNBase):
            width, dim = layer.input_size, -1
        else:
            continue
        if isinstance(given, Tensor):
            return _misfit(layer, given, width, dim, data, names)
        places = [i for i, value in enumerate(data) if value is given]
        whose = _argument(places[0], names) if places else f"the input of {layer}"
        return (
            f"{whose} is of type {type(given).__name__}, but the network takes numbers: pass an array with one row an "
            f"observation."
        )
    return None


def _misfit(layer: nn.Module, given: Tensor, width: int, dim: int, data: Data, names: Sequence[str]) -> str | None:
    kind = "channels" if isinstance(layer, nn.modules.conv._ConvNd) else "columns"
    found = given.shape[dim] if given.ndim >= -dim else None
    if found == width and given.ndim > 1:
        return None  # whatever failed, it was not the width
    places = [i for i, value in enumerate(data) if isinstance(value, Tensor) and value.shape == given.shape]
    if not places:
        return (
            f"The layer {layer} takes {width} {kind}, but its input has shape {list(given.shape)}: change the network, so that "
            f"each layer takes what the one before returns."
        )
    place = places[0]
    needs = f"but the network's first layer takes {width}"
    if other := [
        i
        for i, value in enumerate(data)
        if i != place and isinstance(value, Tensor) and value.ndim >= max(2, -dim) and value.shape[dim] == width
    ]:
        return (
            f"{_argument(place, names)} has shape {list(given.shape)}, {needs}, as {_argument(other[0], names)} has: the two "
            f"seem to be swapped."
        )
    if given.ndim == 1:
        hint = f"{names[place]}[:, None]" if width == 1 else f"{names[place]}.reshape(-1, {width})"
        units = kind if width != 1 else kind[:-1]
        return f"{_argument(place, names)} has one dimension, shape {list(given.shape)}, {needs} {units}: write {hint}."
    if found is None:
        return f"{_argument(place, names)} has shape {list(given.shape)}, {needs} {kind}, in dimension {dim}."
    return (
        f"{_argument(place, names)} has {found} {kind if found != 1 else kind[:-1]}, {needs}. Pass the {kind} that the "
        f"network was written for, or build it for {found}."
    )


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _sources(traceback: TracebackType | None) -> Iterator[tuple[FrameType, str]]:
    """Yield the frames of a traceback with the lines at which they stand."""
    while traceback is not None:
        frame = traceback.tb_frame
        yield frame, linecache.getline(frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next


def _argument(place: int, names: Sequence[Any]) -> str:
    return f"argument {place + 1} ({names[place]!r})"
