"""Results on disk: a complete folder, or nothing."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bnnzoo.reporting.comparison_page import render
from bnnzoo.reporting.effects import effects_frame
from bnnzoo.reporting.methods import Comparison
from bnnzoo.reporting.repeats import repeats_frame
from bnnzoo.reporting.rows import predictions_frame

__all__ = ["new_folder", "refuse_unusable_folder", "write"]


def refuse_unusable_folder(path: Path) -> None:
    """Refuse a path at which no new folder can be created.

    Parameters
    ----------
    path : Path

    Raises
    ------
    FileExistsError, FileNotFoundError, PermissionError
        With one sentence that names the path.
    """
    parent = path.absolute().parent
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{str(path)!r} already exists; choose another --out, or remove it.")
    if not parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(parent)!r} for {path.name!r}; create it first.")
    if not _can_hold_a_folder(parent):
        raise PermissionError(f"The folder {str(parent)!r} is not writable; choose another --out.")


def _can_hold_a_folder(parent: Path) -> bool:
    """Try it: the permissions of a folder say nothing to a superuser, or about a file system without room for folders."""
    if not os.access(parent, os.W_OK):
        return False
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=".bnnzoo-"):
            return True
    except OSError:
        return False


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` if the body succeeds, and is removed if it does not.

    Parameters
    ----------
    path : Path
        Must not exist.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with new_folder(Path(parent) / "results") as folder:
    ...         _ = (folder / "a.txt").write_text("whole")
    ...     os.listdir(parent)
    ['results']
    """
    refuse_unusable_folder(path)
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}-") as holder:
        folder = Path(holder) / path.name
        folder.mkdir()
        yield folder
        refuse_unusable_folder(path)
        os.replace(folder, path)


def write(comparison: Comparison, folder: Path) -> None:
    """Write ``report.html``, ``predictions.csv``, ``effects.csv`` and one netCDF file per method into a folder.

    With several splits there is also ``splits.csv``.

    Parameters
    ----------
    comparison : Comparison
    folder : Path
        An existing folder, such as that of :func:`new_folder`.
    """
    for fitted in comparison.fitted:
        fitted.to_tree().to_netcdf(folder / f"{fitted.name}.nc", engine="h5netcdf")
    predictions_frame(comparison).to_csv(folder / "predictions.csv", index=False)
    effects = {fitted.name: fitted.effects for fitted in comparison.fitted}
    effects_frame(effects, comparison.classes).to_csv(folder / "effects.csv", index=False)
    if comparison.repeats:
        repeats_frame(comparison.repeats).to_csv(folder / "splits.csv", index=False)
    (folder / "report.html").write_text(render(comparison), encoding="utf-8")
