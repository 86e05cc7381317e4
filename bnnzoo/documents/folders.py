"""New files and folders for results: complete, or not there at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bnnzoo.engine.files import refuse_missing_folder, whole_folder

__all__ = ["new_folder", "refuse_unusable_folder", "refuse_unwritable"]


def refuse_unusable_folder(path: Path, asked_by: str = "--out") -> None:
    """Refuse a path at which no new folder can be created.

    Parameters
    ----------
    path : Path
    asked_by : str
        What the user gave the path to, for the sentence.

    Raises
    ------
    FileExistsError, FileNotFoundError, PermissionError
        With one sentence that names the path.
    """
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{str(path)!r} already exists; choose another {asked_by}, or remove it.")
    _refuse_unwritable_parent(path, asked_by)


def _refuse_unwritable_parent(path: Path, asked_by: str) -> None:
    refuse_missing_folder(path)
    parent = path.absolute().parent
    try:  # permissions say nothing to a superuser, or about a file system without room for folders
        if os.access(parent, os.W_OK):
            with tempfile.TemporaryDirectory(dir=parent, prefix=".bnnzoo-"):
                return
    except OSError:
        pass
    raise PermissionError(f"The folder {str(parent)!r} is not writable; choose another {asked_by}.")


@contextmanager
def new_folder(path: Path, asked_by: str = "--out") -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` if the body succeeds, and is removed if it does not.

    Parameters
    ----------
    path : Path
        Must not exist.
    asked_by : str
        As for :func:`refuse_unusable_folder`.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with new_folder(Path(parent) / "results") as folder:
    ...         _ = (folder / "a.txt").write_text("whole")
    ...     os.listdir(parent)
    ['results']
    """
    refuse_unusable_folder(path, asked_by)
    with whole_folder(path.absolute()) as folder:
        yield folder
        refuse_unusable_folder(path, asked_by)


def refuse_unwritable(path: Path) -> None:
    """Refuse a path to which no file can be written.

    Parameters
    ----------
    path : Path

    Raises
    ------
    OSError
        With one sentence that names the path.
    """
    if path.is_dir():
        raise IsADirectoryError(
            f"{str(path)!r} is a folder: add the name of a file, as in {str(path / 'report.html')!r}."
        )
    _refuse_unwritable_parent(path, "path")
