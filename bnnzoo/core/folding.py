"""HTML forms of objects for notebooks: one line that unfolds to what is behind it."""

from collections.abc import Mapping
from html import escape

__all__ = ["as_table", "folded", "preformatted"]


def folded(line: str, inside: str) -> str:
    """Return HTML that shows a line and, once it is clicked, what is inside.

    Parameters
    ----------
    line : str
        Text.
    inside : str
        HTML.

    Examples
    --------
    >>> folded("mlp(3)", "<p>251 parameters</p>")
    '<details><summary><code>mlp(3)</code></summary><p>251 parameters</p></details>'
    """
    return f"<details><summary><code>{escape(line)}</code></summary>{inside}</details>"


def preformatted(text: str) -> str:
    """Return text as HTML that keeps its lines."""
    return f"<pre>{escape(text)}</pre>"


def as_table(rows: Mapping[str, str]) -> str:
    """Return names and texts as an HTML table of two columns; texts keep their lines."""
    cells = "".join(
        f'<tr><th style="text-align: left">{escape(name)}</th><td style="text-align: left">{preformatted(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table>{cells}</table>"
