"""Shared parts of many fits of one kind: the time of compiling, and what is made of the model's function."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["Kind", "fits_to_come", "over_all_fits"]

_NUMBER: ContextVar[int] = ContextVar("number of fits", default=1)


class Kind:
    """Fits of one function to data sets of the same shapes, and the graphs of it that they share.

    It stays behind where a fit is sent to another process.

    Examples
    --------
    >>> kind = Kind()
    >>> kind.shared("numbers", lambda: [1, 2]) is kind.shared("numbers", lambda: [3])
    True
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def __reduce__(self) -> tuple[type["Kind"], tuple[()]]:
        return Kind, ()

    @property
    def is_plain(self) -> bool:
        """Whether all that was made runs as it was meant to: nothing fell back to Python, or has been compiled on the way."""
        return all(each is not None and getattr(each, "is_plain", True) for each in self._made.values())

    def shared[T](self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what the first fit that asked for ``key`` has made; a key that cannot be hashed stands for nothing."""
        try:
            hash(key)
        except TypeError:
            return make()
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found


@contextmanager
def fits_to_come(number: int) -> Iterator[None]:
    """Let every choice of an engine count so many fits of the same model and shapes, of which the body makes one.

    Examples
    --------
    >>> with fits_to_come(100):
    ...     over_all_fits(50)
    5000
    """
    token = _NUMBER.set(number)
    try:
        yield
    finally:
        _NUMBER.reset(token)


def over_all_fits(number: int) -> int:
    """Return a number of steps or calls of one fit, counted over all that are to come."""
    return number * _NUMBER.get()
