"""Results larger than the machine's memory are refused with their size before anything is allocated."""

import os
from pathlib import Path

__all__ = ["free_memory", "refuse_beyond_memory"]


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


def free_memory() -> int | None:
    """Return the bytes of memory that programs can still have, as far as the system says; else how much there is."""
    info = Path("/proc/meminfo")
    if info.exists():
        found = [line.split()[1] for line in info.read_text().splitlines() if line.startswith("MemAvailable:")]
        if found:
            return 1024 * int(found[0])
    return _physical_memory()


def _physical_memory() -> int | None:
    """Return the bytes of memory of this machine, None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
