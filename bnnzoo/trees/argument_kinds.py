"""Arguments of the wrong kind, refused in one sentence that says what to pass."""

from collections.abc import Mapping
from numbers import Integral
from types import UnionType

import xarray as xr

__all__ = [
    "refuse_no_count",
    "refuse_no_probability",
    "refuse_no_tree",
    "refuse_no_trees",
    "refuse_other_kind",
    "refuse_other_kinds",
    "refuse_parts_of_trees",
]


def refuse_other_kind(value: object, kind: type | UnionType, argument: str, instead: str) -> None:
    """Refuse what is not of some kind.

    Parameters
    ----------
    value : object
    kind : type or union of types
    argument : str
        Its name in the message.
    instead : str
        What to pass.

    Raises
    ------
    TypeError
        Naming the argument, the type that was found, and ``instead``.

    Examples
    --------
    >>> refuse_other_kind([0.5], xr.DataArray, "score", "what a measure returns")
    Traceback (most recent call last):
    TypeError: score is of type list: pass what a measure returns.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{argument} is of type {type(value).__name__}: pass {instead}.")


def refuse_no_probability(prob: object, asking: str = "") -> None:
    """Refuse what is no probability of an interval or a test, for a function that may be named.

    Raises
    ------
    ValueError
        With what was found.

    Examples
    --------
    >>> refuse_no_probability(95)
    Traceback (most recent call last):
    ValueError: prob=95: write a probability between 0 and 1, such as 0.95.
    """
    if not isinstance(prob, int | float) or not 0.0 < prob < 1.0:
        found = f"{asking}(prob={prob!r})" if asking else f"prob={prob!r}"
        raise ValueError(f"{found}: write a probability between 0 and 1, such as 0.95.")


def refuse_other_kinds(values: object, kind: type, argument: str, instead: str) -> None:
    """Refuse what is neither of some kind nor a mapping of names to such objects; see :func:`refuse_other_kind`."""
    for value in values.values() if isinstance(values, Mapping) and not isinstance(values, kind) else (values,):
        refuse_other_kind(value, kind, argument, f"{instead}, or several of them by name")


def refuse_no_tree(data: object) -> None:
    """Refuse what is neither a tree nor a part of one, such as a posterior or a plain array.

    Raises
    ------
    TypeError
        Saying what makes a tree of it.
    """
    if not isinstance(data, xr.DataTree | xr.Dataset | xr.DataArray):
        made = "tree = bnnzoo.predict(posterior, x, y)" if hasattr(data, "draws") else "what bnnzoo.predict returns"
        raise TypeError(f"Measures take trees, but the first argument is of type {type(data).__name__}: pass {made}.")


def refuse_parts_of_trees(data: object, argument: str = "the first argument") -> None:
    """Refuse what is no whole tree, such as one of its groups.

    Parameters
    ----------
    data : object
    argument : str
        How the message calls it.

    Raises
    ------
    TypeError
        Saying what to pass.
    """
    refuse_no_tree(data)
    if not isinstance(data, xr.DataTree):
        found = f"{argument} is a part of one, of type {type(data).__name__}"
        raise TypeError(f"This measure takes a whole tree, but {found}: pass what bnnzoo.predict returns.")


def refuse_no_trees(argument: str, trees: object) -> None:
    """Refuse what is no mapping of names to trees.

    Parameters
    ----------
    argument : str
        Its name in messages.
    trees : object

    Raises
    ------
    TypeError, ValueError
    """
    if isinstance(trees, xr.DataTree):
        raise TypeError(f'{argument} is a single tree: name it, as in {{"nuts": tree}}.')
    refuse_other_kind(trees, Mapping, argument, 'trees by name, as in {"nuts": bnnzoo.predict(posterior, x)}')
    assert isinstance(trees, Mapping)
    if not trees:
        raise ValueError(
            f'{argument} is empty: pass at least one tree, as in {{"nuts": bnnzoo.predict(posterior, x)}}.'
        )
    for name, tree in trees.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"{argument} has the key {name!r}: name each tree by a text, such as 'nuts'.")
        if not isinstance(tree, xr.DataTree):
            made = "bnnzoo.predict(posterior, x)" if hasattr(tree, "draws") else "what bnnzoo.predict returns"
            raise TypeError(f"{argument} holds no tree under {name!r}, but a {type(tree).__name__}: pass {made}.")


def refuse_no_count(name: str, value: object) -> None:
    """Refuse an argument ``name`` that is no whole number of at least one.

    Examples
    --------
    >>> refuse_no_count("num_bins", 2.5)
    Traceback (most recent call last):
    TypeError: num_bins=2.5: write a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: write a whole number.")
    if value < 1:
        raise ValueError(f"{name}={value}: write a positive number.")
