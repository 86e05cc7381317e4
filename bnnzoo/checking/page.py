"""The page of a check: verdict, findings, and every question with its answer."""

from collections.abc import Sequence
from typing import Protocol

import pandas as pd

from bnnzoo.checking.findings import Finding
from bnnzoo.core.posterior import Posterior
from bnnzoo.reporting.blocks import Cell, Grid, Section, Sentences
from bnnzoo.reporting.page import Page, footer

__all__ = ["Checked", "page_of"]

ABOUT = {
    "level": "Is it on its predictions' level?",
    "dispersion": "Does it scatter as much as the model says?",
    "shape": "Is it distributed as the model says?",
    "outliers": "Are there observations far out?",
    "smallest": "Does it go as low as the model says?",
    "largest": "Does it go as high as the model says?",
    "zeros": "Are there as many zeros as the model expects?",
    "curve": "Do residuals depend on it?",
    "spread along": "Does the scatter depend on it?",
    "neighbours along": "Are neighbours along it alike?",
    "order": "Are rows near one another alike?",
    "groups": "Do residuals differ between its levels?",
    "spread of groups": "Does the scatter differ between its levels?",
    "product": "Do residuals depend on the product?",
    "slopes": "Do slopes differ between levels?",
}


class Checked(Protocol):
    """What a page shows; see :class:`bnnzoo.checking.ModelCheck`."""

    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def faults(self) -> Sequence[Finding]: ...
    @property
    def asked(self) -> pd.DataFrame: ...
    @property
    def skipped(self) -> Sequence[str]: ...
    @property
    def posterior(self) -> Posterior: ...
    @property
    def verdict(self) -> str: ...


def page_of(found: Checked) -> Page:
    """Return a check as a page."""
    info, density = found.posterior.info, found.posterior.density
    facts = (
        ("Faults", str(len(found.faults))),
        ("Questions", str(len(found.asked))),
        ("Observations", str(density.num_data)),
        ("Fit", info.method),
    )
    sections = [
        Section("Findings", (Sentences((found.verdict,)), *((_findings(found),) if found.findings else ()))),
        Section("What was asked of the data", (_questions(found),)),
    ]
    if found.skipped:
        sections.append(Section("What was not checked", (Sentences(tuple(map(_sentence, found.skipped))),)))
    return Page(
        kicker="Check of a model",
        title=f"{', '.join(density.observed)} given the model",
        description=repr(density),
        facts=facts,
        sections=tuple(sections),
        footer=footer(),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _findings(found: Checked) -> Grid:
    rows = [
        (
            Cell("fault" if each.is_fault else "note", is_warning=each.is_fault),
            Cell(each.sentence, is_words=True),
            Cell(each.advice, is_words=True),
        )
        for each in found.findings
    ]
    return Grid("", "", ("", "what was found", "what to do"), tuple(rows))


def _questions(found: Checked) -> Grid:
    ordered = found.asked.sort_values("p_value", kind="stable")
    wrong = {(each.evidence.get("site"), each.kind, each.evidence.get("about")) for each in found.faults}
    rows = []
    for site, kind, about, p, size in ordered[["site", "kind", "about", "p_value", "size"]].itertuples(index=False):
        shown = Cell("< 0.0001" if p < 1e-4 else f"{p:.4f}", is_warning=(site, kind, about) in wrong)
        rows.append((str(site), Cell(ABOUT[kind], is_words=True), about or "all rows", shown, f"{size:.3g}"))
    note = (
        "p-values are averages over twenty draws of the posterior; Holm's procedure decides which of them count. Sizes are means "
        "and correlations of normal scores, for zeros a ratio, for outliers a count."
    )
    return Grid("", note, ("site", "question", "about", "p", "size"), tuple(rows))
