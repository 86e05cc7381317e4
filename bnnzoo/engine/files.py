"""Files written whole or not at all, and folders that belong to one user."""

import atexit
import glob
import os
import platform
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

HAS_OWNERS = hasattr(os, "getuid")
"""Whether files belong to users, and say who may write to them; on Windows a user's folders are closed to others anyway."""

__all__ = [
    "cache_folder",
    "is_private",
    "own_folder",
    "partial_name",
    "refuse_missing_folder",
    "sweep",
    "whole_file",
    "whole_folder",
]

ABANDONED = 86_400.0
"""Seconds after which what a process on another machine left half-written is removed."""


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a name to write to; the file takes the place of ``path`` once the body has succeeded, and is on the disk by then.

    Parameters
    ----------
    path : Path
    private : bool
        Close the file to others, whatever the process allows them.

    Raises
    ------
    OSError
        Naming ``path``, whatever the error of the body names.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     with whole_file(path) as partial:
    ...         _ = partial.write_text("whole")
    ...     path.read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    partial = partial_name(path)
    try:
        with _named(path):
            yield partial
            if private:
                partial.chmod(0o600)
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write into, which becomes ``path`` once the body has succeeded.

    Raises
    ------
    OSError
        If there is something at ``path`` already.
    """
    partial = partial_name(path)
    try:
        with _named(path):
            partial.mkdir()
        yield partial
        with _named(path):
            partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let errors of writing name the file."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise type(error)(error.errno or 0, reason, str(path)) from error


def partial_name(path: Path) -> Path:
    """Return the name of what becomes ``path``, after removing what killed processes left there."""
    sweep(path.parent, f".{path.name}.partial-")
    return path.with_name(f".{path.name}.partial-{platform.node()}-{os.getpid()}-{threading.get_native_id()}")


def sweep(folder: Path, start: str) -> None:
    """Remove from a folder what killed processes left half-written under names that begin with ``start``."""
    for path in folder.glob(f"{glob.escape(start)}*"):
        if ".partial-" in path.name and _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _is_abandoned(partial: Path) -> bool:
    """Tell whether the process that wrote this has ended; one on another machine is given a day."""
    host, *numbers = partial.name.rpartition(".partial-")[2].rsplit("-", 2)
    try:
        if host != platform.node() or len(numbers) < 2:
            return time.time() - partial.stat().st_mtime > ABANDONED
        os.kill(int(numbers[0]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False


def refuse_missing_folder(path: Path) -> None:
    """Refuse a path in a folder that does not exist.

    Raises
    ------
    FileNotFoundError
        With one sentence that names the folder.
    """
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {str(path.absolute().parent)!r} for {path.name!r}; create it first."
        )


def cache_folder(name: str) -> Path:
    """Return the folder ``name`` for compiled code, which belongs to this user alone.

    It is ``bnnzoo/<name>`` below ``XDG_CACHE_HOME`` or ``~/.cache``; or else, where that cannot be written to, or others may
    write to it, ``bnnzoo-<user id>/<name>`` in the folder of temporary files; or else a folder of this process, removed when it
    ends.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    for folder in (base / "bnnzoo", Path(tempfile.gettempdir()) / f"bnnzoo-{_user()}"):
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
    for each in (base, base / name):
        each.mkdir(exist_ok=True, mode=0o700)  # the second one only once the first is known to be no link
        if not is_private(each) or not each.is_dir() or not os.access(each, os.W_OK):
            raise PermissionError(f"{each} is not this user's own folder, or can be written to by others")
    return base / name


def is_private(path: Path) -> bool:
    """Tell whether a file or folder, no link, belongs to this user and cannot be written to by anyone else."""
    try:
        found = path.lstat()
    except OSError:
        return False
    kind = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    closed = not HAS_OWNERS or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return kind and found.st_uid == _user() and closed


def _user() -> int:
    """Return this user's number, which all files have where they belong to nobody."""
    return os.getuid() if HAS_OWNERS else 0
