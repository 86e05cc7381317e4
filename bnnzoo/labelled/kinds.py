"""Arguments of the wrong kind, refused in one sentence that says what to pass."""

from collections.abc import Mapping
from types import UnionType

import xarray as xr

__all__ = ["refuse_no_trees", "refuse_other_kind"]


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
