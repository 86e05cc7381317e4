"""The pages of the documentation about the cards, written from the cards."""

import json
from collections.abc import Sequence
from pathlib import Path

from bnnzoo.inference.config import config_of
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import list as list_cards
from bnnzoo.zoo.cells import Cell
from bnnzoo.zoo.posteriordb_data import NOTICE
from bnnzoo.zoo.reference import reference, referenced
from bnnzoo.zoo.table_page import table_page

__all__ = ["card_page", "write_pages"]

TABLE = "table"
NOTICE_AT = f"its notice is `bnnzoo/zoo/posteriordb/{NOTICE}`"


def card_page(card: Card) -> str:
    """Return the page of a card in Markdown.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> card_page(bz.zoo.load("linear-regression")).splitlines()[0]
    '# Linear regression with a known noise'
    """
    lines = ["| method | settings |", "|---|---|"]
    for name, method in card.methods.items():
        # write a method as Python does, without the settings that are its defaults
        default = config_of(type(method)())
        changed = {key: value for key, value in config_of(method).items() if value != default.get(key)}
        inner = ", ".join(f"{key}={_value(value)}" for key, value in changed.items())
        lines.append(f"| `{name}` | `{type(method).__name__}({inner})` |")
    parts = [
        f"# {card.title}",
        f"`bz.zoo.load({card.name!r})`, version {card.version}",
        card.description,
        _picture(card),
        f"**Data.** {_data(card)}",
        f"**Prior.** {card.prior.scale}. {card.prior.why}",
        "\n".join(lines),
        _reference(card),
        "**References.** " + " ".join(card.references),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_pages(folder: Path, cells: Sequence[Cell] = ()) -> None:
    """Write a page for each card and one for the table, and remove those of cards that are gone.

    Parameters
    ----------
    folder : Path
        Is created if need be.
    cells : sequence of Cell
        Of the table. None: it has no page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = {card.name: card_page(card) for card in list_cards()} | ({TABLE: table_page(cells)} if cells else {})
    for old in folder.glob("*.md"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if (
            not path.is_file() or path.read_text(encoding="utf-8") != text
        ):  # pages that did not change are not built again
            path.write_text(text, encoding="utf-8")


def _data(card: Card) -> str:
    if card.needs is None:
        terms = f" They are under the licence {card.data_licence}: {NOTICE_AT}." if card.data_licence else ""
        return card.data().recipe + terms
    return f"`{card.needs}` in a folder of your own, named by `BNNZOO_DATA`; it is not part of bnnzoo."


def _picture(card: Card) -> str:
    if card.needs is not None:
        return ""
    code = f"import bnnzoo as bz\nfrom bnnzoo.zoo.figure import card_figure\ncard_figure(bz.zoo.load({card.name!r}))"
    body = "\n".join(f"    {line}" for line in code.splitlines())
    return f"```{{eval-rst}}\n.. plot::\n   :include-source: false\n\n{body}\n```"


def _value(value: object) -> str:
    if isinstance(value, dict):
        name = value.get("method") or value.get("class") or ""
        return f"{name}(...)"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _reference(card: Card) -> str:
    if card.name not in referenced():
        return ""
    about = reference(card.name).attrs
    return (
        f"**Reference posterior.** {about['num_draws']:,} draws of {about['method']}: largest R-hat of a prediction "
        f"{about['max_rhat']:.4f}, smallest effective sample size {about['min_ess_bulk']:,.0f}. Made by `{about['command']}`."
    )
