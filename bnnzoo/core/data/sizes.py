"""Results larger than the memory that is free are refused with their size before anything is allocated."""

import os
from pathlib import Path

__all__ = ["free_memory", "refuse_beyond_memory"]

GROUPS = Path("/sys/fs/cgroup")
"""Where Linux says how much memory the processes of a container may have together."""


def refuse_beyond_memory(num_bytes: float, what: str, advice: str) -> None:
    """Refuse results that take more bytes than programs can still have.

    Raises
    ------
    ValueError
        Saying how many bytes are needed and how many there are.

    Examples
    --------
    >>> refuse_beyond_memory(8e15, "10000 draws x 10**11 rows", "Choose a smaller num_draws")
    Traceback (most recent call last):
    ...
    ValueError: 10000 draws x 10**11 rows take 8,000,000 GB, but this machine has ... GB free. Choose a smaller num_draws.
    """
    available = free_memory()
    if available is not None and num_bytes > available:
        raise ValueError(
            f"{what} take {_in_words(num_bytes)}, but this machine has {_in_words(available)} free. {advice}."
        )


def free_memory() -> int | None:
    """Return the bytes of memory that this process can still have, as far as the system says; else how much there is."""
    info = Path("/proc/meminfo")
    if not info.exists():
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
    found = [1024 * int(line.split()[1]) for line in info.read_text().splitlines() if line.startswith("MemAvailable:")]
    # what the container of this process has left, if it has a limit; files that were read count as free
    for folder, limit, usage in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most, used, kinds = ((GROUPS / folder / name).read_text() for name in (limit, usage, "memory.stat"))
            cached = [
                int(line.split()[1])
                for line in kinds.splitlines()
                if line.startswith(("inactive_file", "total_inactive_file"))
            ]
            found.append(int(most) - int(used) + max(cached, default=0))
            break
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(found, default=None)


def _in_words(num_bytes: float) -> str:
    gigabytes = num_bytes / 1e9
    return f"{gigabytes:,.0f} GB" if gigabytes >= 10 else f"{gigabytes:.2g} GB"
