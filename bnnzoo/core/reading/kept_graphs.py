"""Graphs and native code of a model's functions, kept from one fit for the next by the same method to data of the same shapes."""

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import num_numbers
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import LogDensity, made_of
from bnnzoo.core.model.kinds import shapes_of
from bnnzoo.core.reading.changes import MAX_NUMBERS, is_as_remembered, is_told_apart, remember_model
from bnnzoo.core.types import Model
from bnnzoo.engine import pytree
from bnnzoo.engine.decisive import decide_alike

__all__ = ["keep_graphs", "take_kept_graphs"]

NUM_KEPT = 8
"""Fits whose graphs are kept, with their data, which are to be little: those of which a model is known again by all rows."""


class _Kept(NamedTuple):
    model: Model
    method: Method
    density: LogDensity


_KEPT: deque[_Kept] = deque(maxlen=NUM_KEPT)


def take_kept_graphs(model: Model, method: Method, density: LogDensity) -> None:
    """Give a density that was just read the graphs of an earlier fit, if the model is the same function of theta and the data.

    It counts as the same if it computes, at two points and given the earlier data, what it did at the end of that fit, down to
    the last digit, and constrains its parameters alike. All else that the data may change is part of the graphs, or decided by
    value (:mod:`bnnzoo.engine.decisive`).

    Parameters
    ----------
    model : callable
        What the user passed.
    method : Method
        The graphs are those of its settings.
    density : LogDensity
    """
    if not _can_be_kept(model, density):
        return
    for kept in reversed(_KEPT):
        if not (_equal(kept.model, model) and _equal(kept.method, method)):
            continue
        known = kept.density
        decide_alike(pytree.tree_leaves(density.data), pytree.tree_leaves(known.data))
        if _layout(known) != _layout(density) or shapes_of(known.data) != shapes_of(density.data):
            continue
        theta = torch.linspace(-1.0, 1.0, known.num_params, dtype=known.dtype)
        ours, theirs = known.constrain(theta), density.constrain(theta)
        if all(torch.equal(ours[name], theirs[name]) for name in ours) and is_as_remembered(known):
            made_of(density, made_of(known))
            return


def keep_graphs(model: Model, method: Method, density: LogDensity) -> None:
    """Keep what a fit has made for the next one, unless part was compiled, or fell back to Python and is to be told again."""
    if not _can_be_kept(model, density) or not made_of(density).is_plain:
        return
    others = [each for each in _KEPT if made_of(each.density) is not made_of(density)]
    _KEPT.clear()
    _KEPT.extend(others)
    remember_model(density)
    if is_told_apart(density):
        _KEPT.append(_Kept(model, method, density))


def _can_be_kept(model: Model, density: LogDensity) -> bool:
    """Tell whether a density is that of the model as it is, given little data."""
    if type(density) is not LogDensity or density.model is not model or density.device.type != "cpu":
        return False
    leaves = pytree.tree_leaves(density.data)
    is_plain = all(isinstance(each, Tensor | int | float | str | None) for each in leaves)
    return is_plain and max(num_numbers(leaves), density.num_params) <= MAX_NUMBERS


def _layout(density: LogDensity) -> tuple[object, ...]:
    return density.dtype, [(site.name, site.shape, site.unconstrained_shape) for site in density.sites]


def _equal(one: object, other: object) -> bool:
    try:  # a method of an object is a new object each time, and equal
        return bool(one == other)
    except Exception:  # settings may be tensors, or anything
        return False
