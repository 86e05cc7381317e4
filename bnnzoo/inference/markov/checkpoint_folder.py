"""The folder of a checkpoint: whose it is, and which process writes to it.

A store is a zarr group that carries bnnzoo's mark, and in it a group for each batch of chains with the fingerprint of its fit.
"""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bnnzoo.core.posterior.archive import UNKNOWN, installed_version
from bnnzoo.core.reading.fingerprint import VALUES, different_values
from bnnzoo.engine.files import partial_name
from bnnzoo.inference.markov.checkpoint_blocks import zarr_library

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Fingerprint",
    "WriterLock",
    "attributes_of",
    "begun_by",
    "open_chains",
    "open_store",
]

type Fingerprint = dict[str, str]

FORMAT = 8
BEGUN_BY = "begun_by"
"""Attribute of a store that holds the versions of bnnzoo and torch which began it; older stores do not have it."""


def open_store(path: Path) -> None:
    """Make a new store, or check that the folder is a store of this format.

    Raises
    ------
    ValueError
        If the folder is not a checkpoint of bnnzoo, or was written by another version.
    OSError
        If it cannot be made.
    """
    try:
        exists = path.exists()
    except OSError as error:
        raise _cannot_write(path, error) from error
    if not exists:
        return _new_group(path, {"bnnzoo": FORMAT, BEGUN_BY: _versions()})
    found = attributes_of(path).get("bnnzoo") if (path / "zarr.json").is_file() else None
    if found is None:
        raise ValueError(f"{path} exists and is no checkpoint of bnnzoo. Give checkpoint=... the name of a new folder.")
    if found != FORMAT:
        raise ValueError(
            f"The checkpoint {path}, begun by {begun_by(path)}, has format {found}, and this version of bnnzoo reads format "
            f"{FORMAT}. Continue the run with the version that began it, or give checkpoint=... the name of a new folder."
        )
    return None


def open_chains(path: Path, first_chain: int, num_chains: int, fingerprint: Fingerprint) -> Path:
    """Return the folder of a batch of chains in a store: a new one, or one that belongs to the same fit.

    Parameters
    ----------
    path : Path
    first_chain, num_chains : int
    fingerprint : dict
        What must agree for the folder to belong to the fit.
    """
    open_store(path)
    chains = f"{first_chain}-{first_chain + num_chains - 1}"
    folder, fingerprint = path / f"chains-{chains}", fingerprint | {"chains together": chains}
    if folder.exists():
        found: Fingerprint = attributes_of(folder).get("fingerprint", {})
        if (missing := fingerprint.keys() - found.keys()) and found:
            raise ValueError(
                f"The checkpoint {folder} was begun by {begun_by(path)}, which did not write down {min(missing)}. Go on with "
                f"that version, or give another folder."
            )
        for name, value in fingerprint.items():
            if name == VALUES:
                if different := different_values(json.loads(found[name]), json.loads(value)):
                    raise ValueError(
                        f"The checkpoint {folder} belongs to another fit: {different}. Repeat the call that began it, or give "
                        f"another folder."
                    )
            elif found.get(name) != value:
                raise ValueError(
                    f"The checkpoint {folder} belongs to another fit: its {name}: {found.get(name)}; of this one: {value}. "
                    f"Repeat the call that began it, or give another folder."
                )
        return folder
    others = [other for other in path.glob("chains-*") if _overlap(other.name, folder.name)]
    if others:
        raise ValueError(
            f"The checkpoint {path} holds {others[0].name}, and this fit runs {folder.name} together. Use the executor the fit "
            f"began with, or another folder."
        )
    _new_group(folder, {"fingerprint": fingerprint})
    return folder


def begun_by(path: Path) -> str:
    """Return the versions that began a store, in words."""
    found = attributes_of(path).get(BEGUN_BY)
    known = {name: value for name, value in found.items() if value != UNKNOWN} if isinstance(found, dict) else {}
    return " with ".join(f"{name} {value}" for name, value in known.items()) or "another version of bnnzoo or torch"


def _versions() -> dict[str, str]:
    return {name: installed_version(name) for name in ("bnnzoo", "torch")}


def attributes_of(path: Path) -> dict[str, Any]:
    """Return the attributes of a zarr group.

    Raises
    ------
    ValueError
        If the file that holds them is damaged.
    """
    file = path / "zarr.json"
    try:
        return dict(json.loads(file.read_text()).get("attributes", {}))
    except (ValueError, AttributeError, TypeError, OSError) as error:
        raise ValueError(
            f"The file {file} of the checkpoint is damaged ({type(error).__name__}: {error}). Restore it from a copy, or begin "
            f"again in another folder."
        ) from error


class WriterLock:
    """The right to write to a folder, held by one process until it releases it or ends.

    The lock file names the process for those who are refused. The operating system holds the lock itself and frees it when the
    process dies, so that the file of a dead process is no obstacle. Where there are no such locks (Windows, some network file
    systems), nobody is refused.

    Parameters
    ----------
    folder : Path

    Raises
    ------
    RuntimeError
        If another process holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / ".lock"
        try:
            while True:
                descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT)
                if not _lock(descriptor):
                    owner = os.pread(descriptor, 32, 0).decode() or "unknown"
                    os.close(descriptor)
                    raise RuntimeError(
                        f"Another process (pid {owner}) writes to the checkpoint {folder}. Wait until it ends, or stop it, and "
                        f"make the same call again; or give checkpoint=... the name of another folder."
                    )
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), self._file.stat()):
                        break
                os.close(descriptor)  # the owner removed the file between our opening and locking it
            self._descriptor = descriptor
            os.truncate(self._descriptor, 0)
            os.write(self._descriptor, str(os.getpid()).encode())
        except OSError as error:
            raise _cannot_write(folder, error) from error

    def release(self) -> None:
        """Let others write to the folder."""
        with suppress(OSError):  # Windows removes no open file
            self._file.unlink()
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a forked child may still hold the file open
        os.close(self._descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file; return False if another process has."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _new_group(path: Path, attributes: Mapping[str, Any]) -> None:
    partial = partial_name(path)
    zarr = zarr_library()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        zarr.open_group(store=str(partial), mode="w", attributes=dict(attributes))
        try:
            partial.rename(path)
        except OSError:  # another worker was first
            shutil.rmtree(partial)
            if not path.exists():
                raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> OSError:
    return OSError(
        f"The checkpoint {path} cannot be written ({error}). Give checkpoint=... the name of a folder where you may write."
    )


def _overlap(one: str, other: str) -> bool:
    first, last, begin, end = (int(part) for name in (one, other) for part in name.removeprefix("chains-").split("-"))
    return first <= end and begin <= last
