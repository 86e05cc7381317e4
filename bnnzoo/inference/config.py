"""A method's settings as plain values, for the attributes of a tree."""

from dataclasses import fields, is_dataclass
from typing import Any

import torch

__all__ = ["config_of"]


def config_of(method: object) -> dict[str, Any]:
    """Return the settings of a method as values JSON knows; methods held by it are nested, other objects are named.

    Examples
    --------
    >>> from bnnzoo.inference.markov.hamiltonian.nuts import NUTS
    >>> config_of(NUTS(num_chains=2))["num_chains"]
    2
    """
    if not is_dataclass(method):
        raise TypeError(f"A method is a frozen dataclass of settings, but {type(method).__name__} is not a dataclass.")
    return {field.name: _plain(getattr(method, field.name)) for field in fields(method)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "run") and is_dataclass(value):
        return {"method": type(value).__name__, **config_of(value)}
    return getattr(value, "__name__", type(value).__name__)
