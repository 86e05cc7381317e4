"""A comparison on the terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.findings import columns, findings, rows
from bnnzoo.apps.reporting.repeats import repeat_grid

__all__ = ["show"]


def show(comparison: Comparison, console: Console) -> None:
    """Print the scores, those of all splits if there are several, and the findings.

    Parameters
    ----------
    comparison : Comparison
    console : rich.console.Console
    """
    title = f"\nHeld-out predictions of {escape(comparison.table.target)}"
    grid = _new_grid(title)
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
        _show_repeats(comparison, console)
    for sentence in findings(comparison):
        console.print(f"• {sentence}", highlight=False, markup=False)


def _show_repeats(comparison: Comparison, console: Console) -> None:
    found = repeat_grid(comparison.repeats, [score for score in comparison.scores if score.is_brief])
    title = f"{len(comparison.repeats)} splits, mean ± standard error"
    grid = _new_grid(title)
    for label in found.columns:
        grid.add_column(label, justify="left" if label == "method" else "right", vertical="bottom")
    for name, cells in found.cells:
        grid.add_row(name, *(cell.text for cell in cells))
    console.print(grid)


def _new_grid(title: str) -> Grid:
    return Grid(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=0)
