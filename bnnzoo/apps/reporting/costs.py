"""Cells of what a fit cost, as far as the attributes of its tree say."""

from collections.abc import Mapping
from typing import Any

__all__ = ["COUNTED_GRADIENTS", "engine", "gradients", "wall_time", "why_slower"]

NO = "–"  # where there is nothing to say
COUNTED_GRADIENTS = (
    "Number of gradients of the log density; in brackets, those of the draws of a Markov chain, without its warm-up."
)


def wall_time(attributes: Mapping[Any, Any]) -> tuple[str, str]:
    """Return the seconds of a fit, and those of them that were compiling."""
    found = (attributes.get(name) for name in ("seconds", "seconds_compiling"))
    seconds, compiling = (NO if value is None else f"{float(value):.1f}" for value in found)
    return seconds, compiling


def engine(attributes: Mapping[Any, Any]) -> str:
    """Return how a fit ran: in native code, as graphs or as Python."""
    return str(attributes.get("engine", NO))


def why_slower(fits: Mapping[str, Mapping[Any, Any]]) -> str:
    """Return for each fit, given by its attributes, that had to fall back why it did, as sentences."""
    reasons = ((name, attributes.get("engine_reasons")) for name, attributes in fits.items())
    return "".join(f" {name} ran no faster because of {reason}." for name, reason in reasons if reason)


def gradients(attributes: Mapping[Any, Any]) -> str:
    """Return the number of gradients and, in brackets, that of the draws without warm-up, where a chain counted it."""
    every, of_draws = (attributes.get(name) for name in ("num_gradients", "num_gradients_of_draws"))
    if every is None:
        return NO
    return f"{int(every):,}" if of_draws is None else f"{int(every):,} ({int(of_draws):,})"
