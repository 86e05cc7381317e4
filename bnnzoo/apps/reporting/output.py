"""Results on disk."""

import json
import shutil
import tempfile
from pathlib import Path

import pandas as pd

from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.comparison_page import render
from bnnzoo.apps.reporting.effects import effects_frame
from bnnzoo.apps.reporting.repeats import repeats_frame
from bnnzoo.apps.reporting.row_table import predictions_frame
from bnnzoo.engine.files import whole_file
from bnnzoo.predictive.save_tree import save_tree

__all__ = ["without_formulas", "write", "write_or_rescue"]


def write_or_rescue(comparison: Comparison, folder: Path, out: Path) -> None:
    """Write a comparison into a folder, or, if that fails, its trees into one for temporary files.

    Parameters
    ----------
    comparison : Comparison
    folder : Path
        An existing folder, such as that of :func:`bnnzoo.apps.reporting.folders.new_folder`.
    out : Path
        What the folder is going to be, for the message.

    Raises
    ------
    OSError
        If something could not be written, saying where the fits are.
    """
    try:
        write(comparison, folder)
    except Exception as error:
        kept = Path(tempfile.mkdtemp(prefix=f"{out.name}-"))
        try:
            _write_trees(comparison, kept)
        except OSError as another:
            shutil.rmtree(kept, ignore_errors=True)
            raise OSError(f"{out} could not be written ({error}), and neither could {kept} ({another}).") from error
        raise OSError(
            f"{out} could not be written ({error}). The fits are kept, one netCDF file for each method, in {kept}: make room, "
            f"and read them with xarray.open_datatree, or pass them to bnnzoo.report."
        ) from error


def write(comparison: Comparison, folder: Path) -> None:
    """Write a comparison into a folder: a page, tables and trees.

    They are ``report.html``, ``predictions.csv``, ``effects.csv``, ``verdicts.json`` and one netCDF file per method; with several
    splits also ``splits.csv``.

    Parameters
    ----------
    comparison : Comparison
    folder : Path
        An existing folder, such as that of :func:`bnnzoo.apps.reporting.folders.new_folder`.
    """
    _write_trees(comparison, folder)
    effects = {fitted.name: fitted.effects for fitted in comparison.fitted}
    frames = {"predictions": predictions_frame(comparison), "effects": effects_frame(effects, comparison.classes)}
    if comparison.repeats:
        frames["splits"] = repeats_frame(comparison.repeats)
    for name, frame in frames.items():
        with whole_file(folder / f"{name}.csv") as partial:
            without_formulas(frame).to_csv(partial, index=False)
    with whole_file(folder / "verdicts.json") as partial:
        partial.write_text(
            json.dumps([each.to_dict() for each in comparison.verdicts], indent=1) + "\n", encoding="utf-8"
        )
    page = render(comparison)
    with whole_file(folder / "report.html") as partial:
        partial.write_text(page, encoding="utf-8")


def _write_trees(comparison: Comparison, folder: Path) -> None:
    for fitted in comparison.fitted:
        save_tree(fitted.to_tree(), folder / f"{fitted.name}.nc")


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose texts no spreadsheet runs: those that begin like a formula have a quote before them.

    Examples
    --------
    >>> without_formulas(pd.DataFrame({"class": ["=SUM(A1)", "no"], "p": [-0.5, 0.5]})).values.tolist()
    [["'=SUM(A1)", -0.5], ['no', 0.5]]
    """
    safe = frame.rename(columns=_quoted)
    for name in safe.select_dtypes(exclude="number"):
        safe[name] = safe[name].map(_quoted)
    return safe


def _quoted(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
