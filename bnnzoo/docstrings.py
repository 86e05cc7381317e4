"""Docstrings that are completed: a class's by those of its bases, a function's by entries that are written once for many."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

__all__ = ["parameters", "sections", "with_inherited_parameters", "with_shared_entries"]

SECTION = re.compile(r"^(?=[A-Z][\w ]*\n---)", re.MULTILINE)
ENTRY = re.compile(r"^\S.*(?:\n(?: .*|(?=\n)))*", re.MULTILINE)
ORDER = (
    "",
    "Parameters",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
    "See Also",
    "Notes",
    "References",
    "Examples",
)
"""Titles of sections in numpydoc's order, after the description, which has none."""


def with_shared_entries[F: Callable[..., Any]](*shared: str) -> Callable[[F], F]:
    """Decorate a function so that its docstring has what it leaves out and the shared ones say.

    A parameter that the function has and does not describe is taken from the shared docstrings, and so is the whole of Returns
    or Raises if the function has no such section. Parameters stand in the order of the signature.

    Parameters
    ----------
    *shared : str
        Docstrings in numpydoc form. What the function has no use for is left out.

    Returns
    -------
    callable
        The decorator, which returns the function itself.

    Examples
    --------
    >>> DRAWN = '''
    ... Parameters
    ... ----------
    ... scale : float
    ...     Standard deviation.
    ... seed : int
    ...     Of the random numbers.
    ... '''
    >>> @with_shared_entries(DRAWN)
    ... def noise(num_data: int, seed: int = 0) -> list[float]:
    ...     '''Return noise.
    ...
    ...     Parameters
    ...     ----------
    ...     num_data : int
    ...         Of the result.
    ...     '''
    >>> print(noise.__doc__.partition("-" * 10)[2].lstrip())
    num_data : int
        Of the result.
    seed : int
        Of the random numbers.
    """

    def completed(function: F) -> F:
        if function.__doc__ is not None:  # as it is under ``python -OO``
            own, *others = (sections(each) for each in (function.__doc__, *shared))
            said = {name: entry for each in others for name, entry in parameters(each).items()} | parameters(own)
            names = [*inspect.signature(function).parameters, *parameters(own)]
            others_then_own = {title: text for each in (*others, own) for title, text in each.items()}
            function.__doc__ = _written(others_then_own, (said[name] for name in names if name in said))
        return function

    return completed


def with_inherited_parameters(kind: type) -> str | None:
    """Return the docstring of a class with the parameters that its bases document and it does not, all as in its signature."""
    if kind.__dict__.get("__doc__") is None:
        return None
    own, *bases = (sections(each.__dict__.get("__doc__") or "") for each in (kind, *kind.__bases__))
    inherited = {name: entry for base in bases for name, entry in parameters(base).items()}
    return _written(own, (inherited | parameters(own)).values())


@cache
def sections(docstring: str) -> Mapping[str, str]:
    """Return the sections of a docstring by title; that of the description is empty."""
    description, *others = SECTION.split(inspect.cleandoc(docstring))
    return {"": description.rstrip()} | {text.partition("\n")[0]: text.rstrip() for text in others}


def parameters(said: Mapping[str, str]) -> dict[str, str]:
    """Return what sections say of each parameter, by its name without the stars of ``*data`` and ``**named``."""
    found = [entry.rstrip() for entry in ENTRY.findall(said.get("Parameters", "").partition("---\n")[2])]
    names = [entry.partition("\n")[0].partition(" : ")[0].split(", ") for entry in found]
    return {name.lstrip("*"): entry for entry, each in zip(found, names, strict=True) for name in each}


def _written(said: Mapping[str, str], entries: Iterable[str]) -> str:
    """Return the docstring of some sections, with these entries of parameters, each once."""
    unique = dict.fromkeys(entries)
    whole = {**said, "Parameters": "\n".join(["Parameters", "----------", *unique])} if unique else said
    place = {title: number for number, title in enumerate(ORDER)}
    return "\n\n".join(whole[title] for title in sorted(whole, key=lambda title: place.get(title, len(ORDER))))
