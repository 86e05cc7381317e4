"""Threads that take turns with what belongs to a whole process: random streams, default dtype, Pyro's parameters."""

import math
import os
import random
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
import torch

from bnnzoo.engine.choose import ASIDE_PAYS_FROM
from bnnzoo.engine.deferred_compiler import compiler_deferred
from bnnzoo.engine.torch_private import untransformed

__all__ = [
    "aside",
    "device_of_caller",
    "let_others",
    "one_at_a_time",
    "plain_torch",
    "seconds_aside",
    "staying",
    "streams_left",
]


class _Queue:
    """A lock that threads get in the order in which they asked for it."""

    def __init__(self) -> None:
        self._waiting: deque[threading.Lock] = deque()
        self._guard = threading.Lock()
        self._is_taken = False

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def acquire(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            ticket = threading.Lock()
            ticket.acquire()
            self._waiting.append(ticket)
        try:
            ticket.acquire()  # until `release` hands the lock on
        except BaseException:  # an interrupt: whoever is next must not wait for this thread
            with self._guard:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                    raise
            self.release()
            raise

    def release(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


class _Own(threading.local):
    """Whether a thread has the turn, what it found then, whether it may step aside, and for how long it has."""

    has_turn = False
    kept: "_Streams | None" = None
    filters: Any = None
    stays = 0
    seconds_aside = 0.0
    device = torch.device("cpu")


class _Streams(NamedTuple):
    """States of the random streams that belong to all threads."""

    torch: torch.Tensor
    numpy: object
    python: object

    @classmethod
    def now(cls) -> "_Streams":
        return cls(torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate())  # noqa: NPY002

    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        np.random.set_state(self.numpy)  # type: ignore[arg-type]  # noqa: NPY002
        random.setstate(self.python)  # type: ignore[arg-type]


_TURN, _OWN = _Queue(), _Own()


def _begin() -> None:
    _OWN.has_turn, _OWN.kept, _OWN.filters = True, _Streams.now(), warnings.filters


def _end() -> None:
    if _OWN.kept is not None:
        _OWN.kept.restore()
    _OWN.has_turn, _OWN.kept = False, None
    _TURN.release()


def _renew() -> None:
    """Make a new lock in a process that was forked while another thread held it."""
    global _TURN
    _TURN = _Queue()
    if _OWN.has_turn:
        _TURN.acquire()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def one_at_a_time[**Arguments, Result](function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let threads take turns with the calls of a function, in the order in which they ask.

    Global random streams are left as they were, and so is all in which :func:`plain_torch` does not compute. A call inside a
    call goes on. Workers of an executor are not called through such functions, so that none waits for its caller.
    """

    @wraps(function)
    def in_turn(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
        with plain_torch():
            if _OWN.has_turn:
                return function(*args, **named)
            _TURN.acquire()
            _begin()
            try:
                return function(*args, **named)
            finally:
                _end()

    return in_turn


@contextmanager
def aside(seconds: float = math.inf) -> Iterator[None]:
    """Let other threads take their turn during work that runs no model and uses no global state, such as native code.

    They find the random streams as they were before this thread's call, and this thread finds its own when it goes on. Inside of
    :func:`staying` nothing happens.

    Parameters
    ----------
    seconds : float
        How long the work is expected to take. Little work is done aside only if another thread waits already.
    """
    is_due = seconds >= ASIDE_PAYS_FROM or _TURN.has_waiting
    if not is_due or not _OWN.has_turn or _OWN.stays:
        yield
        return
    mine, filters = _Streams.now(), warnings.filters
    warnings.filters = _OWN.filters
    _end()
    began = time.perf_counter()
    try:
        yield
    finally:
        _OWN.seconds_aside += time.perf_counter() - began
        _TURN.acquire()
        _begin()
        mine.restore()
        warnings.filters = filters  # those of a context that is still open


@contextmanager
def streams_left() -> Iterator[None]:
    """Leave the random streams that belong to all threads as they are found."""
    found = _Streams.now()
    try:
        yield
    finally:
        found.restore()


@contextmanager
def staying() -> Iterator[None]:
    """Keep the turn where global state is not as others expect it: while a model runs, or with a parameter store of its own."""
    _OWN.stays += 1
    try:
        yield
    finally:
        _OWN.stays -= 1


def seconds_aside() -> float:
    """Return for how long this thread has let others take their turn, until now."""
    return _OWN.seconds_aside


def let_others() -> None:
    """Let those threads that wait take their turn; to be called between the steps of long work."""
    if _TURN.has_waiting:
        with aside():
            pass


@contextmanager
def plain_torch() -> Iterator[None]:
    """Compute outside of what the caller has torch do to operations.

    Inference mode keeps no gradients, autocasting rounds products of matrices, a default device other than the CPU takes the
    tensors that are the library's own, and under ``vmap``, in which a model runs that calls this library in its body, random
    numbers are those of many draws.
    """
    with ExitStack() as stack:
        stack.enter_context(untransformed())
        stack.enter_context(compiler_deferred())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if (device := torch.get_default_device()).type != "cpu":
            stack.callback(setattr, _OWN, "device", _OWN.device)
            stack.enter_context(torch.device("cpu"))
            _OWN.device = device
        yield


def device_of_caller() -> torch.device:
    """Return torch's default device outside of the library, inside of which it is the CPU but for the model."""
    device = torch.get_default_device()
    return _OWN.device if device.type == "cpu" else device
