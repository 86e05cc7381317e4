"""Reading a model from the data as a user passes them: conversion, and one sentence where they do not fit."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.conversion import DataError
from bnnzoo.core.density import LogDensity, first_run
from bnnzoo.core.minibatch import as_tensors
from bnnzoo.core.misfits import is_own, refuse_no_rows
from bnnzoo.core.replay import Node
from bnnzoo.core.types import Data, Model

__all__ = ["conformed", "read_model"]


def read_model(
    model: Model, data: Data, dtype: torch.dtype, device: torch.device
) -> tuple[LogDensity, Mapping[str, Node]]:
    """Return the density of a model given its data, and the nodes of its first run.

    Whole numbers and booleans stay what they are where the model takes them, as labels, counts or indices of groups. Where it
    fails on them, as a network does, they are converted to ``dtype``: matrices first, then all.

    Parameters
    ----------
    model : callable
    data : tuple
        Its arguments as the user passes them, see :func:`bnnzoo.core.minibatch.as_tensors`.
    dtype : torch.dtype
    device : torch.device

    Raises
    ------
    DataError
        If the data are not finite numbers, or do not fit the model.
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
    tensors = as_tensors(data, dtype, device)
    refuse_no_rows(model, tensors)
    attempts = [tensors, *_with_whole_numbers_converted(tensors, dtype)]
    for converted in attempts[:-1]:
        try:
            return first_run(model, *converted, dtype=dtype, device=device)
        except DataError:
            continue
        except (RuntimeError, TypeError, ValueError) as error:
            if is_own(error):
                raise
    return first_run(model, *attempts[-1], dtype=dtype, device=device)


def conformed(data: Data, fitted: Data) -> Data:
    """Return tensors in the types of those to which a model was fitted, where that changes no value."""
    return tuple(_conformed(new, old) for new, old in zip(data, fitted, strict=False)) + data[len(fitted) :]


def _conformed(new: Any, old: Any) -> Any:
    if not (isinstance(new, Tensor) and isinstance(old, Tensor)) or new.dtype == old.dtype:
        return new
    converted = new.to(old.dtype)
    return converted if old.is_floating_point() or bool((converted == new).all()) else new


def _with_whole_numbers_converted(data: Data, dtype: torch.dtype) -> list[Data]:
    """Return the data with matrices of whole numbers as floating-point numbers, and with all of them, where that differs."""
    found: list[Data] = []
    for at_least in (2, 1):
        is_whole = [isinstance(v, Tensor) and v.ndim >= at_least and not v.is_floating_point() for v in data]
        if any(is_whole):
            found.append(tuple(v.to(dtype) if whole else v for v, whole in zip(data, is_whole, strict=True)))
    return found
