"""Checks of what a report is asked to do, before anything is computed."""

import os
import tempfile
from pathlib import Path

__all__ = ["refuse_bad_reference", "refuse_unwritable"]


def refuse_bad_reference(reference: str | None, names: list[str]) -> None:
    """Refuse a reference that is not one of the trees.

    Raises
    ------
    ValueError
    """
    if reference is not None and reference not in names:
        raise ValueError(f"reference={reference!r} is not one of the trees: write one of {', '.join(names)}.")


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
    folder = path.absolute().parent
    if path.is_dir():
        raise IsADirectoryError(
            f"{str(path)!r} is a folder: add the name of a file, as in {str(path / 'report.html')!r}."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r} for {path.name!r}; create it first.")
    if not _takes_files(folder):
        raise PermissionError(f"The folder {str(folder)!r} is not writable; choose another path.")


def _takes_files(folder: Path) -> bool:
    """Try it, since permissions say nothing to a superuser."""
    if not os.access(folder, os.W_OK):
        return False
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
