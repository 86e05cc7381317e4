"""Points at which a model cannot be evaluated: the site and the reason, in words."""

from typing import NamedTuple

from bnnzoo.engine.reports import first_line

__all__ = ["Failure", "NumericalFailure", "failure_of"]


class Failure(NamedTuple):
    """The site at which a model fails, or the last one that it reached before, and what happens there, as a clause."""

    site: str
    clause: str

    def __str__(self) -> str:
        """Return the clause, which names the site."""
        return self.clause


class NumericalFailure(FloatingPointError):
    """A model cannot be evaluated at some values of its latent variables, though it may be at others."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"The model cannot be evaluated at this point: {failure}.")
        self.failure = failure


def failure_of(error: Exception, reached: str) -> Failure:
    """Return how a run of a model ended in a numerical error after the last site that it reached.

    Examples
    --------
    >>> failure_of(OverflowError("math range error"), "scale").clause
    "after site 'scale' it fails with OverflowError: math range error"
    """
    place = f"after site {reached!r}" if reached else "before its first site"
    return Failure(reached, f"{place} it fails with {first_line(error).rstrip('.')}")
