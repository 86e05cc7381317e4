"""Derivatives without the import of torch's compiler, which torch.func makes only to switch it off."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any

import torch

from bnnzoo.engine.torch_private import COMPILING_AUTOGRAD, DYNAMO

__all__ = ["compiler_deferred"]

_LOCK, _OPEN = Lock(), [0]


class _Deferred(ModuleType):
    """A stand-in for a module, which is imported once something is asked for that is not known here."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(import_module(self.__name__), name, value)


@contextmanager
def compiler_deferred() -> Iterator[None]:
    """Differentiate within the body without importing torch's compiler; whatever else asks for it gets it.

    Each derivative tells the compiler to leave its backward pass alone, which it compiles only where a program has imported it
    and asked for that. The import takes more than a second, longer than most fits.

    Examples
    --------
    >>> with compiler_deferred():
    ...     torch.func.grad(lambda x: x * x)(torch.tensor(3.0))
    tensor(6.)
    """
    name = DYNAMO.partition(".")[2]
    with _LOCK:
        _OPEN[0] += 1
        if DYNAMO not in sys.modules and name not in vars(torch):
            autograd = _Deferred(COMPILING_AUTOGRAD, _disable=nullcontext)
            setattr(torch, name, _Deferred(DYNAMO, **{COMPILING_AUTOGRAD.rpartition(".")[2]: autograd}))
    try:
        yield
    finally:
        with _LOCK:
            _OPEN[0] -= 1
            if not _OPEN[0] and isinstance(vars(torch).get(name), _Deferred):
                delattr(torch, name)
