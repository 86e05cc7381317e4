"""Results larger than the machine's memory are refused with their size before anything is allocated."""

import os

__all__ = ["refuse_beyond_memory"]


def refuse_beyond_memory(num_bytes: float, what: str, advice: str) -> None:
    """Refuse results that take more bytes than the machine has.

    Raises
    ------
    ValueError
        Saying how many bytes are needed and how many there are.

    Examples
    --------
    >>> refuse_beyond_memory(8e15, "10000 draws x 10**11 rows", "Choose a smaller num_draws")
    Traceback (most recent call last):
    ...
    ValueError: 10000 draws x 10**11 rows take 8,000,000 GB, but this machine has ... GB. Choose a smaller num_draws.
    """
    available = _physical_memory()
    if available is not None and num_bytes > available:
        raise ValueError(
            f"{what} take {num_bytes / 1e9:,.0f} GB, but this machine has {available / 1e9:,.0f} GB. {advice}."
        )


def _physical_memory() -> int | None:
    """Return the bytes of memory of this machine, None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
