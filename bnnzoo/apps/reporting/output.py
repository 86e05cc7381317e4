"""Results of a comparison on disk and on the terminal."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.pages import render
from bnnzoo.apps.reporting.partial_dependence import effects_frame
from bnnzoo.apps.reporting.repeated_splits import repeat_grid, repeats_frame
from bnnzoo.apps.reporting.report_findings import findings
from bnnzoo.apps.reporting.scores import class_probabilities, interval, log_density, observed
from bnnzoo.apps.reporting.tables import columns, rows
from bnnzoo.engine.files import whole_file
from bnnzoo.predictive.save_tree import save_tree

__all__ = ["predictions_frame", "show", "without_formulas", "write", "write_or_rescue"]


def write_or_rescue(comparison: Comparison, folder: Path, out: Path) -> None:
    """Write a comparison into a folder, or, if that fails, its trees into one for temporary files.

    Parameters
    ----------
    comparison : Comparison
    folder : Path
        An existing folder, such as that of :func:`bnnzoo.documents.folders.new_folder`.
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
        An existing folder, such as that of :func:`bnnzoo.documents.folders.new_folder`.
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


def predictions_frame(comparison: Comparison) -> pd.DataFrame:
    """Return the number of each held-out row, its observation, and each method's prediction, in the units of the target.

    Columns of a method ``m``: for regression ``m.mean``, ``m.sd``, ``m.lower_90``, ``m.upper_90``; for classification
    ``m.predicted`` and the probability ``m.p(c)`` of each class c; for both ``m.log_density`` of the observation.
    """
    table = comparison.table
    y = observed(comparison.fitted[0].test)
    labels = np.asarray(table.classes)
    columns = {"row": table.test_rows, table.target: labels[y.astype(int)] if table.classes else y}
    for fitted in comparison.fitted:
        if table.classes:
            probs = class_probabilities(fitted.test)
            columns[f"{fitted.name}.predicted"] = labels[probs.argmax(-1)]
            columns |= {f"{fitted.name}.p({name})": probs[:, k] for k, name in enumerate(table.classes)}
        else:
            moments = fitted.test["conditional"].to_dataset()
            mean, draws = moments["mean"], ("chain", "draw")
            lower, upper = interval(fitted.test)
            columns[f"{fitted.name}.mean"] = mean.mean(draws).to_numpy()
            columns[f"{fitted.name}.sd"] = (moments["variance"].mean(draws) + mean.var(draws)).to_numpy() ** 0.5
            columns |= {f"{fitted.name}.lower_90": lower, f"{fitted.name}.upper_90": upper}
        columns[f"{fitted.name}.log_density"] = log_density(fitted.test)
    return pd.DataFrame(columns)


def show(comparison: Comparison, console: Console) -> None:
    """Print the scores, those of all splits if there are several, and the findings.

    Parameters
    ----------
    comparison : Comparison
    console : rich.console.Console
    """
    grid = _new_grid(f"\nHeld-out predictions of {escape(comparison.table.target)}")
    grid.add_column("method", style="bold", min_width=10, vertical="bottom")  # "linear regression" breaks between words
    for label, _ in columns(comparison, brief=True):
        grid.add_column(label, justify="right", min_width=8, vertical="bottom")
    for name, cells in rows(comparison, brief=True):
        styles = ["yellow" if cell.is_warning else "bold green" if cell.is_best else "" for cell in cells]
        grid.add_row(
            name,
            *(f"[{style}]{cell.text}[/]" if style else cell.text for cell, style in zip(cells, styles, strict=True)),
        )
    console.print(grid)
    if comparison.repeats:
        found = repeat_grid(comparison.repeats, [score for score in comparison.scores if score.is_brief])
        grid = _new_grid(f"{len(comparison.repeats)} splits, mean ± standard error")
        for label in found.columns:
            grid.add_column(label, justify="left" if label == "method" else "right", vertical="bottom")
        for name, row in found.cells:
            grid.add_row(name, *(cell.text for cell in row))
        console.print(grid)
    for sentence in findings(comparison):
        console.print(f"• {sentence}", highlight=False, markup=False)


def _new_grid(title: str) -> Grid:
    return Grid(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=0)
