"""How many fits of one kind are to come, among which the time of compiling is shared."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["fits_to_come", "over_all_fits"]

_NUMBER: ContextVar[int] = ContextVar("number of fits", default=1)


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
