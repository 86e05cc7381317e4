"""The arguments of a model as its user passes them, by position or by name, in the order in which the model takes them."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from bnnzoo.core.data.described import described
from bnnzoo.core.types import Data, Model

__all__ = ["argument_names", "leaves", "parameters_of", "parts_of", "positional", "refuse_names_of_settings"]

BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def argument_names(model: Model, count: int) -> list[str]:
    """Return the names of a model's first ``count`` positional arguments, ``argument_<i>`` where it has none.

    Examples
    --------
    >>> argument_names(lambda x, y=None: None, 2)
    ['x', 'y']
    """
    names = [parameter.name for parameter in parameters_of(model)]
    return [*names, *(f"argument_{i}" for i in range(len(names), count))][:count]


def positional(model: Model, args: Data, kwargs: Mapping[str, Any], *, new: bool = False) -> Data:
    """Return positional and keyword arguments of a model as positional ones; gaps are filled with the model's defaults.

    The model of a formula takes a data frame in place of its arguments; ``new`` tells it that rows are to be predicted.

    Raises
    ------
    TypeError
        If the model has no argument of a name, takes it by name only, or has no default for one that is not given.

    Examples
    --------
    >>> positional(lambda x, mask=None, y=None: None, (1,), {"y": 3})
    (1, None, 3)
    """
    if any(isinstance(value, DataLoader | Dataset) for value in args):
        return args  # which gives all arguments of the model
    if not kwargs and (encoded := described(model).from_data(args, new=new)) is not None:
        return tuple(encoded)
    if not kwargs:
        _refuse_missing(model, len(args))
        return args
    parameters = parameters_of(model)
    names = [parameter.name for parameter in parameters]
    for name in kwargs:
        if name in described(model).settings:
            raise TypeError(
                f"{name} is a setting of the formula: write formula(..., {name}=...) and fit that. Its model takes a "
                f"data frame and no further arguments, as in predict(posterior, frame)."
            )
        if name not in names:
            raise TypeError(
                f"The model has no positional argument {name!r}; its arguments are {', '.join(names) or 'none'}. Pass "
                f"{name!r} under one of these names, or by position."
            )
    last = max(names.index(name) for name in kwargs)
    values = list(args)
    if names.index(next(iter(sorted(kwargs, key=names.index)))) < len(args):
        twice = next(name for name in names if name in kwargs)
        raise TypeError(f"Argument {twice!r} of the model is passed twice, by position and by name.")
    for parameter in parameters[len(args) : last + 1]:
        value = kwargs.get(parameter.name, parameter.default)
        if value is inspect.Parameter.empty:
            raise TypeError(f"The model's argument {parameter.name!r} is missing, and the model has no default for it.")
        values.append(value)
    _refuse_missing(model, len(values))
    return tuple(values)


def changed_settings(function: Callable[..., Any], given: Mapping[str, object]) -> dict[str, bool]:
    """Return for each keyword-only setting of a function whether it was ``given`` another value than its default.

    Examples
    --------
    >>> def fit(model, *data, seed=0, dtype=None): ...
    >>> changed_settings(fit, {"model": print, "data": (), "seed": 3, "dtype": None})
    {'seed': True, 'dtype': False}
    """
    settings = [each for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    pairs = {each.name: (given[each.name], each.default) for each in settings}
    return {
        name: value is not default and not (type(value) is type(default) and bool(value == default))
        for name, (value, default) in pairs.items()
    }


def refuse_names_of_settings(
    function: str, model: Model, args: Data, kwargs: Mapping[str, Any], changed: Mapping[str, bool]
) -> None:
    """Refuse a call by name in which a setting of ``function`` may be meant for an argument of the model.

    Parameters
    ----------
    function : str
        Its name in the message.
    model : callable
    args, kwargs
        Arguments of the model by position and by name.
    changed : Mapping[str, bool]
        The settings of the function, and whether each is other than its default.

    Raises
    ------
    TypeError
        If the model has an argument with the name of a setting that was passed, or that would get its default in passing.

    Examples
    --------
    >>> refuse_names_of_settings("fit", lambda x, seed=0: None, (1, 7), {}, {"seed": True})
    """
    names = argument_names(model, len(parameters_of(model)))
    last = max((names.index(name) for name in kwargs if name in names), default=-1)
    for place, name in enumerate(names[len(args) :], len(args)):
        if name in changed and (changed[name] or place < last):
            raise TypeError(
                f"{name!r} is an argument of the model and a setting of {function}, which takes {name}= for itself. Pass the "
                f"model's arguments up to {name!r} by position, or give it another name in the model."
            )


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an argument holds, however deep in mappings and sequences, and how it is called.

    Examples
    --------
    >>> list(leaves("d", {"x": 1, "more": (2, {"y": 3})}))
    [("d['x']", 1), ("d['more'][0]", 2), ("d['more'][1]['y']", 3)]
    """
    parts = parts_of(path, value)
    if parts is None:
        yield path, value
        return
    for inner, _, part in parts:
        yield from leaves(inner, part)


def parts_of(path: str, value: Any) -> list[tuple[str, Any, Any]] | None:
    """Return what a mapping or sequence holds, with paths and keys; None for anything else, and for lists of numbers."""
    if isinstance(value, dict):
        return [(f"{path}[{key!r}]", key, part) for key, part in value.items()]
    if isinstance(value, list | tuple) and not all(isinstance(part, int | float | list | None) for part in value):
        fields = getattr(value, "_fields", None) or range(len(value))
        paths = [f"{path}.{field}" if isinstance(field, str) else f"{path}[{field}]" for field in fields]
        return list(zip(paths, range(len(value)), value, strict=True))
    return None


def _refuse_missing(model: Model, count: int) -> None:
    parameters = parameters_of(model)
    missing = [repr(each.name) for each in parameters[count:] if each.default is inspect.Parameter.empty]
    if missing:
        raise TypeError(
            f"The model takes {', '.join(repr(each.name) for each in parameters)}, and has no default for "
            f"{' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} missing. Pass None for observations that "
            f"are not known."
        )


def parameters_of(model: Model) -> list[inspect.Parameter]:
    """Return the arguments that a model takes by position."""
    try:
        found = inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature, such as one written in C
        return []
    return [parameter for parameter in found if parameter.kind in BY_POSITION]
