"""Settings that samplers share, and what is said where they cannot be."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol, runtime_checkable

from bnnzoo.core.density import LogDensity

__all__ = [
    "Tuning",
    "WarmUp",
    "even_groups",
    "refuse_counts",
    "refuse_single_parameter",
    "refuse_tuning",
    "refuse_untuned",
    "usual_steps",
]


@runtime_checkable
class WarmUp(Protocol):
    """Settings of a sampler that finds its step size during warm-up unless it is given."""

    @property
    def num_warmup(self) -> int: ...
    @property
    def step_size(self) -> float | None: ...


@runtime_checkable
class Tuning(WarmUp, Protocol):
    """Settings of a sampler that tunes its step size to an acceptance rate."""

    @property
    def target_accept(self) -> float: ...


def even_groups(num_chains: int, num_groups: int) -> list[range]:
    """Return the numbers of chains in at most ``num_groups`` groups that differ by at most one in size.

    Examples
    --------
    >>> even_groups(5, 2)
    [range(0, 2), range(2, 5)]
    """
    num = min(num_groups, num_chains)
    ends = [num_chains * i // num for i in range(num + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]


def usual_steps(num_params: int) -> int:
    """Return how many gradient steps a draw of so many parameters is taken to need; by it a loop is known to be long.

    Measured: 7 for 3 parameters of a linear model, 500 for the 502 of a network, whose widths differ more.

    Examples
    --------
    >>> usual_steps(100)
    40
    """
    return math.ceil(4 * math.sqrt(num_params))


def refuse_counts(name: str, counts: Mapping[str, tuple[int, int]]) -> None:
    """Raise ValueError if one of ``{argument: (value, least)}`` of the method ``name`` is too small."""
    for argument, (value, least) in counts.items():
        if value < least:
            raise ValueError(f"{name}({argument}={value}): write {least} or more.")


def refuse_tuning(name: str, settings: Tuning) -> None:
    """Raise ValueError if the step size of the method ``name`` cannot be tuned as asked for."""
    if not 0 < settings.target_accept < 1:
        raise ValueError(
            f"{name}(target_accept={settings.target_accept}): write an acceptance rate between 0 and 1, such as 0.8."
        )
    refuse_untuned(name, settings)


def refuse_untuned(name: str, settings: WarmUp) -> None:
    """Raise ValueError if there is neither a step size of the method ``name`` nor a warm-up to find one."""
    if settings.step_size is None and settings.num_warmup == 0:
        raise ValueError(f"{name}(num_warmup=0) tunes nothing: give step_size=..., or warm up.")


def refuse_single_parameter(name: str, density: LogDensity) -> None:
    """Raise ValueError if there is no direction to turn to."""
    if density.num_params < 2:
        raise ValueError(
            f"{name} turns a direction in parameter space, and this model has {density.num_params} unconstrained parameter "
            f"({density.sites[0].name}). Use NUTS()."
        )
