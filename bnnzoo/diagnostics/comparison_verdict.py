"""Verdict on each method in a comparison, and on all of them."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import pandas as pd

__all__ = ["Finding", "Verdict", "Verdicts"]


@dataclass(frozen=True)
class Finding:
    """One way in which draws differ from those of the reference.

    Attributes
    ----------
    kind : {"mode", "spread", "tails", "location"}
    where : str
        The site, or the predictions, with the share of rows.
    size : float
        In units of the reference's scale for ``location``, logarithm of a ratio for ``spread`` and ``tails``, the share of the
        reference's draws for ``mode``.
    error : float
        Monte Carlo standard error of ``size``; 0 for ``mode``.
    sentence : str
    """

    kind: str
    where: str
    size: float
    error: float
    sentence: str


@dataclass(frozen=True, repr=False)
class Verdict:
    """What a comparison says of one method, in words.

    Attributes
    ----------
    method, reference : str
    agrees : bool or None
        None where nothing can be said.
    findings : tuple of Finding
        Gravest first.
    score : str
        Whether it matters for the log density of observations; empty if that is not known.
    decision : str
        Whether it matters for what is decided; empty if that is not known.
    advice : str
        What to do; empty if the method agrees.
    opening : str
    evidence : tuple of str
        What else speaks against the method, or for it: its own chains or importance weights, leave-one-out densities,
        coverage and replicates of observations, simulation-based calibration; empty where these tell no difference.
    """

    method: str
    reference: str
    agrees: bool | None
    findings: tuple[Finding, ...]
    score: str
    decision: str
    advice: str
    opening: str
    evidence: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the verdict as a paragraph."""
        return self.paragraph()

    def _repr_html_(self) -> str:
        """Return the verdict in one sentence, which unfolds to all."""
        return f"<details><summary>{escape(self.opening)}</summary>{escape(self.paragraph())}</details>"

    def paragraph(self, *, score: bool = True) -> str:
        """Return the verdict as a paragraph, with or without what it says of the log density."""
        scores = (self.score,) if score else ()
        parts = (
            self.opening,
            *(each.sentence for each in self.findings),
            *scores,
            *self.evidence,
            self.decision,
            self.advice,
        )
        return " ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self) | {"text": str(self)}


class Verdicts(dict[str, Verdict]):
    """Verdicts by method; prints as paragraphs, shows as a table."""

    def __str__(self) -> str:
        """Return a paragraph for each method."""
        return "\n\n".join(map(str, self.values()))

    def __repr__(self) -> str:
        """Return a table: what agrees, and the gravest difference of what does not."""
        return self.to_frame().to_string() if self else "no other method than the reference"

    def _repr_html_(self) -> str:
        """Return verdicts that unfold, one below the other."""
        return "".join(each._repr_html_() for each in self.values())

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each method: whether it agrees, and where, in what and by how much it differs most.

        Returns
        -------
        DataFrame
            ``agrees`` (None where nothing can be said), ``where``, ``kind``, ``size`` and ``error`` of the gravest
            :class:`Finding`, and ``advice``.
        """
        rows = {}
        for name, each in self.items():
            first = each.findings[0] if each.findings else None
            found = (
                ("", "", float("nan"), float("nan"))
                if first is None
                else (first.where, first.kind, first.size, first.error)
            )
            rows[name] = (each.agrees, *found, each.advice)
        columns = ["agrees", "where", "kind", "size", "error", "advice"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)
