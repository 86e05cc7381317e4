"""Annotated field types with allowed ranges, and their validator.

A frozen dataclass declares ``num_draws: Count = 1000`` or ``jitter: Annotated[float, Range(0, 1, open_high=True)] = 0.5``;
:func:`check_settings` reads the annotations of every field and of the methods held in fields.
"""

import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

__all__ = [
    "IF_GIVEN",
    "Count",
    "Fraction",
    "NonNegative",
    "NonNegativeCount",
    "Positive",
    "Range",
    "Seed",
    "check_argument",
    "check_settings",
]

IF_GIVEN = {"recorded": "if given"}
"""Metadata of a field that a record of settings leaves out where it is None: records from before it existed stay those of it."""


@dataclass(frozen=True)
class Range:
    """An interval of numbers, for an annotation: ``Annotated[int, Range(1)]``.

    Parameters
    ----------
    low, high : float
        Ends of the interval.
    open_low, open_high : bool
        Whether an end is excluded. Infinities always are, as is NaN.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: Any) -> bool:
        """Tell whether a finite number lies in the interval."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and math.isfinite(value)

    def __str__(self) -> str:
        """Say what to write instead of a number outside."""
        if (self.low, self.high, self.open_low) == (0, math.inf, True):
            return "a positive number"
        if self.high == math.inf:
            return f"more than {self.low:g}" if self.open_low else f"{self.low:g} or more"
        if self.low == -math.inf:
            return f"less than {self.high:g}" if self.open_high else f"{self.high:g} or less"
        ends = "between" if self.open_low and self.open_high else "from"
        middle = "and" if ends == "between" else "to"
        excluded = {(True, False): f", not {self.low:g} itself", (False, True): f", not {self.high:g} itself"}
        return f"a number {ends} {self.low:g} {middle} {self.high:g}{excluded.get((self.open_low, self.open_high), '')}"


type Count = Annotated[int, Range(1)]
type NonNegativeCount = Annotated[int, Range(0)]
type Positive = Annotated[float, Range(0, open_low=True)]
type NonNegative = Annotated[float, Range(0)]
type Seed = Annotated[int, Range(0, 2**63 - 1)]
type Fraction = Annotated[float, Range(0, 1, open_low=True, open_high=True)]


def check_settings(settings: object) -> None:
    """Refuse a dataclass of settings whose values are not what its annotations ask for; dataclasses in fields likewise.

    Raises
    ------
    TypeError
        If a value has the wrong type.
    ValueError
        If it has the right type and lies outside the range, or is none of the words, that the annotation allows.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Sampler:
    ...     num_draws: Count = 1000
    >>> check_settings(Sampler(num_draws=0))
    Traceback (most recent call last):
    ValueError: Sampler(num_draws=0): write 1 or more.
    """
    hints = get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):  # type: ignore[arg-type]  # the caller passes dataclasses alone
        value = getattr(settings, field.name)
        check_argument(type(settings).__name__, field.name, value, hints[field.name])
        if is_dataclass(value) and hasattr(value, "run") and not isinstance(value, type):
            check_settings(value)


def check_argument(owner: str, name: str, value: object, hint: Any) -> None:
    """Refuse one argument ``name`` of ``owner`` that is not what the annotation ``hint`` asks for; see :func:`check_settings`."""
    if _matches(value, hint):
        return
    whole = _resolved(hint)
    options = get_args(whole) if get_origin(whole) in (Union, types.UnionType) else (whole,)
    # a word where others are asked for has the right type
    is_word = isinstance(value, str) and any(get_origin(_resolved(each)) is Literal for each in options)
    kind = ValueError if is_word or _matches(value, _without_ranges(hint)) else TypeError
    wanted = _wanted(hint, names_type=kind is TypeError)
    if isinstance(value, str | int | float | bool | None):
        shown = repr(value)
    else:
        shown = f"{value.__name__}" if isinstance(value, type) else f"{type(value).__name__}(...)"
    raise kind(f"{owner}({name}={shown}): write {wanted}.")


def _matches(value: object, hint: Any) -> bool:
    hint = _resolved(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = (each for each in arguments[1:] if isinstance(each, Range))
        return _matches(value, arguments[0]) and all(value in each for each in ranges)
    if origin in (Union, types.UnionType):
        return any(_matches(value, each) for each in arguments)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in arguments)
    if origin is Sequence:
        items = [value] if isinstance(value, str) else value
        return isinstance(items, Sequence) and all(_matches(each, arguments[0]) for each in items)
    kind = hint if origin is None else origin
    if kind is Any:
        return True
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if kind in (None, type(None)):
        return value is None
    if kind is Callable:
        return callable(value)
    return isinstance(value, kind) and not isinstance(value, type)


def _resolved(hint: Any) -> Any:
    while isinstance(hint, TypeAliasType):
        hint = hint.__value__
    return hint


def _without_ranges(hint: Any) -> Any:
    """Return an annotation that asks for types alone."""
    hint = _resolved(hint)
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(_without_ranges(each) for each in get_args(hint))]  # noqa: UP007  # a tuple of them
    return hint


def _wanted(hint: Any, *, names_type: bool = False) -> str:
    """Say what an annotation asks for; to whoever passed another type, that a count is a whole number, too."""
    hint = _resolved(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        (interval,) = (each for each in arguments[1:] if isinstance(each, Range))
        return f"a whole number, {interval}" if names_type and arguments[0] is int else str(interval)
    if origin in (Union, types.UnionType):
        return _listed([_wanted(each, names_type=names_type) for each in arguments])
    if origin is Literal:
        return _listed([repr(each) for each in arguments])
    if origin is Sequence:
        return f"a sequence, each {_wanted(arguments[0], names_type=names_type)}"
    words = {int: "a whole number", float: "a number", bool: "True or False", str: "a string", type(None): "None"}
    kind = hint if origin is None else origin
    return words.get(kind) or ("a callable" if kind is Callable else f"a {kind.__name__}")


def _listed(words: list[str]) -> str:
    unique = list(dict.fromkeys(words))
    return " or ".join([", ".join(unique[:-1]), unique[-1]] if len(unique) > 1 else unique)
