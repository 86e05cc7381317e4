"""A page as one self-contained HTML document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from bnnzoo.apps.reporting.page_blocks import Section
from bnnzoo.predictive.datatree import versions

__all__ = ["Page", "footer"]


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
        source = (files("bnnzoo.apps.reporting") / "template.html").read_text(encoding="utf-8")
        return template.from_string(source).render(page=self)


def footer() -> str:
    """Return the versions of bnnzoo and what it computes with, in one line."""
    named = {name.replace("_version", "").replace("_", "-"): version for name, version in versions().items()}
    return " · ".join(f"{name} {version}" for name, version in named.items())
