"""What is going on around a call of bnnzoo, and must not reach the models that it runs."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import RLock

import numpy as np
import torch
from pyro.poutine import runtime
from pyro.poutine.condition_messenger import ConditionMessenger
from pyro.poutine.do_messenger import DoMessenger
from pyro.poutine.indep_messenger import IndepMessenger
from pyro.poutine.lift_messenger import LiftMessenger
from pyro.poutine.mask_messenger import MaskMessenger
from pyro.poutine.reparam_messenger import ReparamMessenger
from pyro.poutine.replay_messenger import ReplayMessenger
from pyro.poutine.scale_messenger import ScaleMessenger
from pyro.poutine.substitute_messenger import SubstituteMessenger
from pyro.poutine.uncondition_messenger import UnconditionMessenger

from bnnzoo.core.sites import ModelError

__all__ = [
    "GIVEN",
    "alone",
    "global_streams_kept",
    "is_given",
    "one_at_a_time",
    "plates_around",
    "refuse_autocast",
    "refuse_surroundings",
]

GIVEN = "bnnzoo_given"
"""Marks a site whose value comes from ``poutine.condition`` and not from its own statement."""

HANDLERS = {
    ConditionMessenger: "condition",
    DoMessenger: "do",
    LiftMessenger: "lift",
    MaskMessenger: "mask",
    ReparamMessenger: "reparam",
    ReplayMessenger: "replay",
    ScaleMessenger: "scale",
    SubstituteMessenger: "substitute",
    UnconditionMessenger: "uncondition",
}
"""Pyro's handlers that make another model of a model, by their names."""


_PYRO_STACK: list[object] = getattr(runtime, "_PYRO_STACK", [])
_PLATES: list[object] = getattr(getattr(runtime, "_DIM_ALLOCATOR", None), "_stack", [])
"""Private parts of Pyro: the handlers and plates that are active. Without them, those around a call are not seen."""

_LOCK, _CALLS = RLock(), RLock()


def _renew() -> None:
    """Make new locks in a process that was forked while another thread held them."""
    global _LOCK, _CALLS
    _LOCK, _CALLS = RLock(), RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def global_streams_kept() -> Iterator[None]:
    """Leave the global streams of torch, numpy and Python as they are, from which some libraries draw when they are imported."""
    states = torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def one_at_a_time[**Arguments, Result](function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let threads take turns with the calls of a function: torch's random stream, default dtype and transforms belong to all.

    Global random streams are left as they were. A call inside a call goes on. Workers of an executor are not called through such
    functions, so that none waits for its caller.
    """

    @wraps(function)
    def in_turn(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
        with _CALLS, global_streams_kept():
            return function(*args, **named)

    return in_turn


@contextmanager
def alone() -> Iterator[None]:
    """Run a model outside of Pyro's handlers and plates in which bnnzoo was called, one thread at a time: they belong to all."""
    with _LOCK, _emptied():
        yield


@contextmanager
def _emptied() -> Iterator[None]:
    if not (_PYRO_STACK or _PLATES):
        yield
        return
    lists = [_PYRO_STACK, _PLATES]
    kept = [list(each) for each in lists]
    for each in lists:
        each.clear()
    try:
        yield
    finally:
        for each, before in zip(lists, kept, strict=True):
            each[:] = before


def is_given(name: str) -> bool:
    """Tell whether a handler of the running model gives a site its value."""
    return any(isinstance(handler, ConditionMessenger) and name in handler.data for handler in _PYRO_STACK)


def plates_around() -> list[str]:
    """Return the names of the plates that a call stands in."""
    return [handler.name for handler in _PYRO_STACK if isinstance(handler, IndepMessenger)]


def refuse_surroundings() -> None:
    """Refuse to read a model where something around the call would change it, or keeps torch from its gradients.

    Raises
    ------
    ModelError
        Saying where to write it instead.
    """
    names = [HANDLERS[type(handler)] for handler in _PYRO_STACK if type(handler) in HANDLERS]
    if names:
        raise ModelError(
            f"poutine.{names[0]} is around the call of bnnzoo, and does not reach the model, which runs by itself. Put it around "
            f"the model: poutine.{names[0]}(model, ...)."
        )
    if torch.is_inference_mode_enabled():
        raise ModelError(
            "torch.inference_mode() is on, in which torch keeps no gradients: fit outside of it. Predictions may be made inside."
        )
    refuse_autocast()


def refuse_autocast() -> None:
    """Refuse to compute where torch rounds the products of matrices.

    Raises
    ------
    ModelError
        Saying what to write instead.
    """
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
        raise ModelError(
            "torch.autocast is on, which would round densities and predictions to two or three digits: call bnnzoo outside of "
            "it, and write fit(..., dtype=torch.float32) for speed."
        )
