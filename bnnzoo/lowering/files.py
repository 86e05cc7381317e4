"""Files written whole or not at all, and folders that belong to one user."""

import atexit
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

__all__ = ["cache_folder", "is_private", "own_folder", "sweep", "whole_file"]

ABANDONED = 3600.0
"""Seconds after which what a killed process left half-written is removed."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a name to write to; the file takes the place of ``path`` once the body has succeeded, and is on the disk by then.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     with whole_file(path) as partial:
    ...         _ = partial.write_text("whole")
    ...     path.read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sweep(folder: Path, *patterns: str) -> None:
    """Remove files that killed processes left half-written in a folder, an hour ago or longer."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()


def cache_folder(name: str) -> Path:
    """Return the folder ``name`` for compiled code, which belongs to this user alone.

    It is ``bnnzoo/<name>`` below ``XDG_CACHE_HOME`` or ``~/.cache``; or else, where that cannot be written to, or others may
    write to it, ``bnnzoo-<user id>/<name>`` in the folder of temporary files; or else a folder of this process, removed when it
    ends.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    for folder in (base / "bnnzoo", Path(tempfile.gettempdir()) / f"bnnzoo-{os.getuid()}"):
        with suppress(OSError):
            return own_folder(folder, name)
    return own_folder(_of_this_process(os.getpid()), name)


@cache
def _of_this_process(number: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bnnzoo-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def own_folder(base: Path, name: str) -> Path:
    """Make a folder ``base/name`` that nobody else may write to; a link at either place is not followed.

    Raises
    ------
    OSError
        If one of the two is not this user's own folder.
    """
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = base / name
    folder.mkdir(exist_ok=True, mode=0o700)
    for each in (base, folder):
        if not stat.S_ISDIR(each.lstat().st_mode) or each.lstat().st_uid != os.getuid():
            raise PermissionError(f"{each} is not this user's own folder")
    if not is_private(folder) or not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} can be written to by others, or cannot be written to")
    return folder


def is_private(path: Path) -> bool:
    """Tell whether a file or folder, no link, belongs to this user and cannot be written to by anyone else."""
    try:
        found = path.lstat()
    except OSError:
        return False
    kind = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return kind and found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
