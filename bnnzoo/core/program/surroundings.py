"""Isolation of a model from what is going on around a call: handlers, plates, random streams, parameter stores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import pyro
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
from torch.overrides import TorchFunctionMode

from bnnzoo.core.program.seeds import word_of
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.turns import device_of_caller, staying
from bnnzoo.core.types import Whole

__all__ = [
    "GIVEN",
    "alone",
    "is_given",
    "isolated",
    "on_device",
    "plates_around",
    "refuse_handlers",
    "reseed",
    "usable_device",
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

DRAWN_ON_A_DEVICE = {torch.rand, torch.randn, torch.randint, torch.randperm}
"""Functions that draw random numbers and take a device besides a generator."""


_PYRO_STACK: list[object] = getattr(runtime, "_PYRO_STACK", [])
_PLATES: list[object] = getattr(getattr(runtime, "_DIM_ALLOCATOR", None), "_stack", [])
"""Private parts of Pyro: the handlers and plates that are active. Without them, those around a call are not seen."""

_LOCK = RLock()


def _renew() -> None:
    """Make a new lock in a process that was forked while another thread held it."""
    global _LOCK
    _LOCK = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def alone() -> Iterator[None]:
    """Run a model outside of Pyro's handlers and plates in which bnnzoo was called, one thread at a time: they belong to all."""
    with _LOCK, staying():
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


@contextmanager
def isolated(seed: Whole, device: torch.device) -> Iterator[None]:
    """Run model code with its own random stream and parameter store, and leave the global ones as they were."""
    devices = [device] if device.type == "cuda" else []
    with staying(), torch.random.fork_rng(devices), pyro.get_param_store().scope(), on_device(device):
        reseed(seed, device)
        yield


def reseed(seed: Whole, device: torch.device) -> None:
    """Begin torch's global random stream for work on ``device`` anew."""
    if device.type == "cuda":
        torch.manual_seed(word_of(seed))
    else:  # seeds no other device either, and spares what that costs each time where CUDA has not been started: 2 ms
        torch.default_generator.manual_seed(word_of(seed))


@contextmanager
def on_device(device: torch.device) -> Iterator[None]:
    """Make tensors on ``device`` by default; on the CPU that is so anyway, and the context would slow every call down."""
    if device.type == "cpu":
        yield
        return
    with device, _GeneratorsAtHome():
        yield


class _GeneratorsAtHome(TorchFunctionMode):
    """Draw random numbers where their generator is: torch would ask a generator of the CPU for numbers on the default device."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is not None and function in DRAWN_ON_A_DEVICE:
            kwargs = {"device": kwargs["generator"].device, **kwargs}
        return function(*args, **kwargs)


def usable_device(device: torch.device | str | None) -> torch.device:
    """Return a device on which torch can compute here, the caller's default device where None is asked for.

    Raises
    ------
    ValueError
        If torch does not know the device, does not find it, or keeps no numbers on it.
    """
    asked = device_of_caller() if device is None else device
    try:
        found = torch.device(asked)
        torch.zeros((), device=found).item()
    except (AssertionError, RuntimeError) as error:  # the former where torch was built without CUDA
        what, instead = ("device=", "Leave device out for the CPU")
        if device is None:
            what, instead = ("torch's default device is ", 'Write device="cpu"')
        raise ValueError(
            f"{what}{str(asked)!r}: torch cannot compute there ({str(error).split('. ')[0]}). {instead}; "
            f'"cuda" needs torch.cuda.is_available().'
        ) from None
    return found


def is_given(name: str) -> bool:
    """Tell whether a handler of the running model gives a site its value."""
    return any(isinstance(handler, ConditionMessenger) and name in handler.data for handler in _PYRO_STACK)


def plates_around() -> list[str]:
    """Return the names of the plates that a call stands in."""
    return [handler.name for handler in _PYRO_STACK if isinstance(handler, IndepMessenger)]


def refuse_handlers() -> None:
    """Refuse a call inside Pyro's handlers that would make another model of the model.

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
