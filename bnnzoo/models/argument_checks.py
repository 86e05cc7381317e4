"""Checks of the arguments of priors and likelihoods, made when the object is created and not when the model runs."""

import inspect
import math

from pyro.distributions.torch_distribution import TorchDistributionMixin

__all__ = ["refuse_bad_scale", "refuse_not_positive", "refuse_uncalled"]


def refuse_not_positive(where: str, **values: float | None) -> None:
    """Refuse a number that is not positive and finite; None is allowed."""
    for name, value in values.items():
        if value is not None and not (isinstance(value, (int, float)) and 0 < value < math.inf):
            raise ValueError(f"{where}: {name} must be a positive number, but is {value!r}.")


def refuse_bad_scale(where: str, scale: TorchDistributionMixin) -> None:
    """Refuse a hyperprior of a scale that is not a scalar distribution on the positive numbers."""
    if not isinstance(scale, TorchDistributionMixin):
        raise TypeError(
            f"{where}: the prior of a scale must be a Pyro distribution, such as pyro.distributions.HalfNormal(1.0), "
            f"but is {scale!r}."
        )
    if scale.batch_shape + scale.event_shape != ():
        raise ValueError(
            f"{where}: the prior of a scale must be one scalar distribution, but {scale} has batch shape "
            f"{tuple(scale.batch_shape)} and event shape {tuple(scale.event_shape)}."
        )
    lower = getattr(scale.support, "lower_bound", -math.inf)
    if scale.support.is_discrete or float(lower) < 0:
        raise ValueError(f"{where}: the prior of a scale must have only positive values, but {scale} has others.")


def refuse_uncalled(where: str, value: object, example: str) -> None:
    """Refuse a prior or likelihood that is not callable, or a bnnzoo factory that was not called."""
    if not callable(value):
        raise TypeError(f"{where} must be an object such as {example}, but is {value!r}.")
    if inspect.isfunction(value) and (value.__module__ or "").startswith("bnnzoo."):
        raise TypeError(f"{where} is the function {value.__name__}: call it, as in {example}.")
