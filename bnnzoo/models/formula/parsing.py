"""The text of a formula, split into an outcome and terms."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "FormulaError", "Group", "Parsed", "parse", "plain_name", "split_outside"]

CALLS = ("s", "gp", "nn", "mi", "offset")
"""Terms that formulaic does not know."""

_CALL = re.compile(rf"(?<![\w.])({'|'.join(CALLS)})\(")
_CLOSING = {")": "(", "]": "[", "}": "{"}


class FormulaError(ValueError):
    """A formula cannot be read, or does not fit the frame; the message names the term and what to write."""


@dataclass(frozen=True)
class Call:
    """A term such as ``s(dose, k=8)``: its name, the texts of its variables, and its settings."""

    name: str
    variables: tuple[str, ...]
    settings: dict[str, Any]
    text: str


@dataclass(frozen=True)
class Group:
    """A term ``(inner | group)``; ``correlated`` is false for ``||``."""

    inner: str
    group: str
    correlated: bool
    text: str


@dataclass(frozen=True)
class Parsed:
    """One formula: its left side, the part that formulaic reads, and the terms that it does not."""

    text: str
    outcome: str
    linear: str = "1"
    calls: tuple[Call, ...] = ()
    groups: tuple[Group, ...] = ()
    additions: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> Parsed:
    """Return a formula in its parts.

    Parameters
    ----------
    text : str
        Such as ``"y ~ age + s(dose) + (1 + age | clinic)"``.

    Raises
    ------
    FormulaError
        If there is no ``~``, a bracket is not closed, or a special term stands within another.

    Examples
    --------
    >>> found = parse("y ~ a*b + s(dose, k=8) + (1 | clinic)")
    >>> found.outcome, found.linear, found.calls[0].settings, found.groups[0].group
    ('y', 'a*b', {'k': 8}, 'clinic')
    """
    sides = split_outside(text, "~")
    if len(sides) != 2 or not sides[0].strip() or not sides[1].strip():
        raise FormulaError(f"The formula {text!r} must have an outcome and terms: write 'y ~ x1 + x2', or 'y ~ 1'.")
    outcome, additions = _left(sides[0], text)
    linear, calls, groups = "", [], []
    for sign, term in _signed(sides[1], text):
        special = _special(term, text)
        if special is None:
            linear += f" {sign} {term}" if linear or sign == "-" else term
        elif sign == "-":
            raise FormulaError(f"The formula {text!r} takes {term} away: leave the term out.")
        elif isinstance(special, Call):
            calls.append(special)
        else:
            groups.append(special)
    return Parsed(text.strip(), outcome, linear.strip() or "1", tuple(calls), tuple(groups), additions)


def split_outside(text: str, separator: str) -> list[str]:
    """Return the parts of a text between separators that stand outside of brackets, quotes and backticks.

    Examples
    --------
    >>> split_outside("a, f(b, c)", ",")
    ['a', ' f(b, c)']
    """
    parts: list[str] = []
    depth: list[str] = []
    quote, start = "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in "([{":
            depth.append(letter)
        elif letter in ")]}":
            if not depth or depth.pop() != _CLOSING[letter]:
                raise FormulaError(f"The brackets of {text.strip()!r} do not match.")
        elif not depth and letter == separator:
            parts.append(text[start:place])
            start = place + 1
    if depth or quote:
        raise FormulaError(f"{text.strip()!r} ends within {'quotes' if quote else 'brackets'}.")
    return [*parts, text[start:]]


def plain_name(text: str) -> str:
    """Return the text of a term as the name of a site: without spaces and backticks, and without '/'."""
    return re.sub(r"\s+", "", text.replace("`", "")).replace("/", "_over_")


def _left(text: str, whole: str) -> tuple[str, dict[str, str]]:
    """Return the outcome, and the columns of weights and censoring beside it."""
    outcome, *more = split_outside(text, "|")
    if len(more) > 1:
        raise FormulaError(f"The formula {whole!r} has two bars on its left side: write 'y | weights(w) ~ x'.")
    outcome, additions = outcome.strip(), {}
    if call := _called(outcome, ("cens",)):
        if len(call.variables) != 2:
            raise FormulaError(f"{call.text!r} in {whole!r} needs a time and a column of events: cens(time, event).")
        outcome, additions["event"] = call.variables[0], call.variables[1]
    for part in split_outside(more[0], "+") if more else ():
        found = _called(part.strip(), ("weights", "cens"))
        if found is None or len(found.variables) != 1:
            raise FormulaError(
                f"{part.strip()!r} on the left side of {whole!r} is not known: write 'y | weights(w) ~ x', or "
                f"'cens(time, event) ~ x'."
            )
        additions["censored" if found.name == "cens" else found.name] = found.variables[0]
    return outcome, additions


def _signed(text: str, whole: str) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(split_outside(text, "+")):
        first, *rest = split_outside(part, "-")
        if first.strip():
            yield "+", first.strip()
        elif number or not rest:
            raise FormulaError(f"The formula {whole!r} has a '+' with nothing beside it.")
        for term in rest:
            if not term.strip():
                raise FormulaError(f"The formula {whole!r} has a '-' with nothing beside it.")
            yield "-", term.strip()


def _special(term: str, whole: str) -> Call | Group | None:
    if term.startswith("(") and term.endswith(")") and len(bars := split_outside(term[1:-1], "|")) > 1:
        correlated = len(bars) == 2
        if not correlated and not (len(bars) == 3 and not bars[1].strip()):
            raise FormulaError(f"{term!r} in {whole!r} has several bars: write (1 + x | group).")
        if not bars[-1].strip():
            raise FormulaError(f"{term!r} in {whole!r} has no group: write (1 | group).")
        _refuse_specials(bars[0], whole)
        return Group(bars[0].strip() or "1", bars[-1].strip(), correlated, term)
    if call := _called(term, CALLS):
        for variable in call.variables:
            _refuse_specials(variable, whole)
        return call
    _refuse_specials(term, whole)
    if len(split_outside(term, "|")) > 1:
        raise FormulaError(f"{term!r} in {whole!r}: write a group in brackets, ({term}).")
    return None


def _refuse_specials(text: str, whole: str) -> None:
    if found := _CALL.search(text):
        raise FormulaError(
            f"{found[1]}(...) stands within {text.strip()!r} in {whole!r}, and can only be a term of its own: write "
            f"'... + {found[1]}(...)'."
        )


def _called(text: str, names: Sequence[str]) -> Call | None:
    name, bracket, rest = text.partition("(")
    if name.strip() not in names or not bracket or not rest.endswith(")"):
        return None
    try:
        parts = split_outside(rest[:-1], ",")
    except FormulaError:  # the bracket that opens after the name closes before the end, as in s(x) * (y)
        return None
    variables, settings = [], {}
    for part in parts:
        key, equals, value = part.partition("=")
        if equals and key.strip().isidentifier():
            try:
                settings[key.strip()] = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                raise FormulaError(f"{value.strip()!r} in {text!r} is no number, text or tuple of numbers.") from None
        elif part.strip():
            variables.append(part.strip())
    return Call(name.strip(), tuple(variables), settings, text)
