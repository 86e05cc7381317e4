"""Objects that print as the call that made them, such as ``fan_in(1.0)``."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any

from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

__all__ = ["Written", "remembers_call", "shown"]


class Written:
    """Base of priors and likelihoods, whose ``repr`` is the call of the function that made them."""

    def __repr__(self) -> str:
        """Return the call, or the fields of an object that was made otherwise."""
        if call := vars(self).get("_call"):
            name, args, kwargs = call
            return f"{name}({', '.join([*map(shown, args), *(f'{each}={shown(value)}' for each, value in kwargs.items())])})"
        values: list[str] = (
            [f"{each.name}={shown(getattr(self, each.name))}" for each in fields(self)] if is_dataclass(self) else []
        )
        return f"{type(self).__name__}({', '.join(values)})"


def remembers_call[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Let what a function returns print as its call.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> bz.priors.fan_in(1.0), bz.likelihoods.student_t(df=3.0)
    (fan_in(1.0), student_t(df=3.0))
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        found = function(*args, **kwargs)
        if isinstance(found, Written):
            call = (function.__name__, args, kwargs)  # written out when asked: values may be of a trace
            object.__setattr__(found, "_call", call)  # most are frozen
        return found

    return called


def shown(value: Any) -> str:
    """Return a value as short text: a distribution with its numbers, a tensor by its shape.

    Examples
    --------
    >>> import pyro.distributions as dist
    >>> shown(dist.HalfNormal(2.0)), shown(0.5)
    ('HalfNormal(2.0)', '0.5')
    """
    if isinstance(value, TorchDistributionMixin):
        names = getattr(value, "arg_constraints", {})
        numbers = [getattr(value, name, None) for name in names]
        known = [number for number in numbers if isinstance(number, Tensor) and number.numel() == 1]
        return f"{type(value).__name__}({', '.join(repr(float(f'{float(number):.6g}')) for number in known)})"
    if isinstance(value, Tensor):
        return f"tensor{list(value.shape)}"
    return str(value.__name__) if hasattr(value, "__name__") else repr(value)
