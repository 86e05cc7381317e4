"""A page: tables, pictures, sentences and code, in sections of one self-contained HTML document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import ClassVar

from jinja2 import Environment, StrictUndefined

__all__ = ["Block", "Code", "Grid", "Page", "Picture", "Section", "Sentences", "TableCell", "footer"]

MOST_ON_A_PHONE = 4
"""Columns of a table."""


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: its text, and whether it is the best of its column, a warning, or a sentence."""

    text: str
    is_best: bool = False
    is_warning: bool = False
    is_words: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Grid:
    """A table: its title, a note below it, the labels of its columns, and rows of text.

    Attributes
    ----------
    title, note : str
    columns : tuple of str
    rows : tuple of tuple of str or TableCell
        The first entry of each row is its name.
    glossary : tuple of pair of str
        Columns and what they mean.
    """

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | TableCell, ...], ...]
    glossary: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "grid"

    @property
    def is_wide(self) -> bool:
        """Whether it has more columns than fit beside one another on a phone."""
        return len(self.columns) > MOST_ON_A_PHONE

    @property
    def cells(self) -> tuple[tuple[str, tuple[TableCell, ...]], ...]:
        """The name and the cells of each row."""
        return tuple(
            (str(name), tuple(cell if isinstance(cell, TableCell) else TableCell(cell) for cell in cells))
            for name, *cells in self.rows
        )


@dataclass(frozen=True)
class Picture:
    """A figure as data URIs, one for wide pages and one for narrow ones, with a caption that says what to look for."""

    title: str
    caption: str
    image: str
    narrow: str
    kind: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Sentences:
    """A list of sentences, or a single paragraph."""

    texts: tuple[str, ...]
    kind: ClassVar[str] = "sentences"


@dataclass(frozen=True)
class Code:
    """Code or settings, folded up under their summary unless ``is_open``."""

    summary: str
    text: str
    is_open: bool = False
    kind: ClassVar[str] = "code"


type Block = Grid | Picture | Sentences | Code


@dataclass(frozen=True)
class Section:
    """A part of a page under one heading."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A page: what stands at its head, and its sections.

    Attributes
    ----------
    kicker, title, description : str
        A line above the title, the title, and a sentence below it.
    facts : tuple of pair of str
        Labels and values that are shown large.
    sections : tuple of Section
    colours : mapping of str to str
        Of the methods, by name.
    simple : tuple of str
        Names of rows of tables that are about simple models, which are muted.
    footer : str
    """

    kicker: str
    title: str
    description: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    colours: Mapping[str, str] = field(default_factory=dict)
    simple: tuple[str, ...] = ()
    footer: str = ""

    def html(self) -> str:
        """Return the page without references to other files; figures are embedded as SVG."""
        template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        source = (files("bnnzoo.documents") / "template.html").read_text(encoding="utf-8")
        return template.from_string(source).render(page=self)


def footer(versions: Mapping[str, str]) -> str:
    """Return versions, ``<package>_version`` by name, in one line."""
    named = {name.replace("_version", "").replace("_", "-"): version for name, version in versions.items()}
    return " · ".join(f"{name} {version}" for name, version in named.items())
