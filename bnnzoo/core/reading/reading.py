"""Reading a model from the data as a user passes them: conversion, and one sentence where they do not fit."""

from collections.abc import Iterator, Mapping
from copy import copy
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.codes import refusing_bad_codes
from bnnzoo.core.data.conversion import DataError, MissingValuesError
from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.model.density import LogDensity, first_run
from bnnzoo.core.model.misfits import is_about_types, is_own, refuse_no_rows
from bnnzoo.core.model.replay import Node
from bnnzoo.core.types import Data, Model
from bnnzoo.engine import pytree
from bnnzoo.engine.value_and_grad import looped_value_and_grad

__all__ = ["conformed", "read_model"]

MAX_CHOSEN = 4
"""Arrays of whole numbers up to which every choice of those to convert is tried."""

NUM_TRIED = 4
"""Points at one of which the log density must be finite where values of the data are missing."""


def read_model(
    model: Model, data: Data, dtype: torch.dtype, device: torch.device
) -> tuple[LogDensity, Mapping[str, Node]]:
    """Return the density of a model given its data, and the nodes of its first run.

    Whole numbers and booleans stay what they are where the model takes them, as labels, counts or indices of groups. Where it
    fails on them, as a network does, they are converted to ``dtype``: matrices first, then as few arguments as possible, so that
    codes of groups stay whole beside outcomes of 0 and 1. Where nothing helps, the error is that of the data as they are.

    Parameters
    ----------
    model : callable
    data : tuple
        Its arguments as the user passes them, see :func:`bnnzoo.core.data.minibatch.as_tensors`.
    dtype : torch.dtype
    device : torch.device

    Raises
    ------
    DataError
        If the data are not finite numbers, and the model does not fill or mask missing ones, or they do not fit the model.
    ModelError
        If bnnzoo does not support the model.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> model = bz.models.supervised(bz.models.mlp(2), bz.priors.normal(1.0), bz.likelihoods.poisson())
    >>> density, _ = read_model(model, ([[1, 2], [3, 4]], [5, 6]), torch.float32, torch.device("cpu"))
    >>> [value.dtype for value in density.data]
    [torch.float32, torch.int64]
    """
    try:
        tensors = as_tensors(data, dtype, device, owned=True)
    except MissingValuesError as refusal:
        # a model that fills or masks missing values has a finite log density and gradient with them
        try:
            found = _read(model, data, as_tensors(data, dtype, device, gaps=True, owned=True), dtype, device)
            density, _ = found
            value, gradient = looped_value_and_grad(density.log_joint)(density.init(NUM_TRIED, 0), *density.data)
        except Exception:  # the user's model may raise anything where values are missing
            raise refusal from None
        if not bool((value.isfinite() & gradient.isfinite().all(1)).any()):
            raise
        return found
    return _read(model, data, tensors, dtype, device)


def _read(
    model: Model, data: Data, tensors: Data, dtype: torch.dtype, device: torch.device
) -> tuple[LogDensity, Mapping[str, Node]]:
    refuse_no_rows(model, tensors)
    errors: list[Exception] = []
    for converted in (tensors, *_with_whole_numbers_converted(tensors, dtype)):
        try:
            with refusing_bad_codes(model, converted):
                return first_run(model, *converted, dtype=dtype, device=device)
        except DataError as error:
            errors.append(error)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            if is_own(error):
                raise
            errors.append(error)
    raise next((error for error in errors if not is_about_types(error)), errors[0])


def conformed(data: Data, fitted: Data) -> Data:
    """Return tensors in the types of those to which a model was fitted, where that changes no value."""
    return tuple(_conformed(new, old) for new, old in zip(data, fitted, strict=False)) + data[len(fitted) :]


def _conformed(new: Any, old: Any) -> Any:
    if isinstance(new, dict) and isinstance(old, dict):  # entries may be left out of new data
        converted = copy(new)
        converted.update({key: _conformed(each, old[key]) for key, each in new.items() if key in old})
        return converted
    if pytree.tree_structure(new) != pytree.tree_structure(old):
        return new
    return pytree.tree_map(_in_the_type_of, new, old)


def _in_the_type_of(new: Any, old: Any) -> Any:
    if not (isinstance(new, Tensor) and isinstance(old, Tensor)) or new.dtype == old.dtype:
        return new
    converted = new.to(old.dtype)
    return converted if old.is_floating_point() or bool((converted == new).all()) else new


def _with_whole_numbers_converted(data: Data, dtype: torch.dtype) -> Iterator[Data]:
    """Yield the data with some of their whole numbers as floating-point numbers: matrices, then as few arguments as possible.

    What indexes something else has to stay whole, so that each argument is tried by itself; of more than a few, all.
    """
    leaves, spec = pytree.tree_flatten(data)  # arrays within mappings are tried as those beside them are
    whole = [i for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.ndim and not v.is_floating_point()]
    matrices = tuple(i for i in whole if leaves[i].ndim >= 2)
    largest = len(whole) if len(whole) <= MAX_CHOSEN else 1
    chosen = [places for count in range(1, largest + 1) for places in combinations(reversed(whole), count)]
    tried = set()
    for places in (matrices, *chosen, tuple(whole)):
        if places and frozenset(places) not in tried:
            tried.add(frozenset(places))
            yield pytree.tree_unflatten([v.to(dtype) if i in places else v for i, v in enumerate(leaves)], spec)
