"""The list of models: each a function of a namespace and its data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Text = Callable[..., None]


@dataclass(frozen=True)
class Stranger:
    """A model's text, which takes a namespace before the data, and its data.

    Attributes
    ----------
    for_reference : callable, optional
        The same posterior in a form that is easy to sample, for the long run; its own sites begin with an underscore.
    without_variance : tuple of str
        Sites whose posterior has no variance, as its tails show on paper: medians and quantiles are compared.
    """

    name: str
    kind: str
    text: Text
    data: tuple[Any, ...]
    for_reference: Text | None = None
    without_variance: tuple[str, ...] = ()


STRANGERS: dict[str, Stranger] = {}


def stranger(
    name: str, kind: str, *data: Any, for_reference: Text | None = None, without_variance: tuple[str, ...] = ()
) -> Callable[[Text], Text]:
    """Enter a function into the list, its data in single precision, as PyTorch's users type them."""

    def enter(text: Text) -> Text:
        if name in STRANGERS:
            raise ValueError(f"There are two models with the name {name!r}.")
        typed = tuple(as_typed(each) for each in data)
        STRANGERS[name] = Stranger(name, kind, text, typed, for_reference, without_variance)
        return text

    return enter


def as_typed(value: Any) -> Any:
    """Return floats in single precision and indices as they are."""
    value = np.asarray(value)
    return value.astype("f") if value.dtype.kind == "f" else value.astype("i8") if value.dtype.kind == "i" else value


def rng(seed: int) -> np.random.RandomState:
    """Return a stream of random numbers."""
    return np.random.RandomState(seed)


def sigmoid(x: Any) -> NDArray[np.floating]:
    """Return the logistic function."""
    found: NDArray[np.floating] = 1 / (1 + np.exp(-np.asarray(x)))
    return found


def normal_draws(seed: int, *means: Any, scale: float = 1.0) -> NDArray[np.floating]:
    """Return the sum of the means plus noise."""
    mean = np.sum([np.asarray(each) for each in means], 0)
    found: NDArray[np.floating] = mean + scale * rng(seed).randn(*np.shape(mean))
    return found
