"""The page of a check: verdict, findings, and every question with its answer."""

from collections.abc import Sequence
from typing import Protocol

import pandas as pd

from bnnzoo.checking.findings import Finding
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.documents.page import Grid, Page, Section, Sentences, TableCell, footer
from bnnzoo.predictive.datatree import versions

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
    "spread": "Does the scatter depend on it?",
    "neighbours": "Are neighbours along it alike?",
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
    findings = tuple(
        f"{'Fault' if each.is_fault else 'Note'}: {each.sentence} {each.advice}" for each in found.findings
    )
    ordered = found.asked.sort_values("p_value", kind="stable")
    wrong = {(each.evidence.get("site"), each.kind, each.evidence.get("about")) for each in found.faults}
    several = found.asked["site"].nunique() > 1
    rows = []
    for site, kind, about, p, size in ordered[["site", "kind", "about", "p_value", "size"]].itertuples(index=False):
        name = f"{kind}: {about}" if about else kind
        shown = TableCell("< 0.0001" if p < 1e-4 else f"{p:.4f}", is_warning=(site, kind, about) in wrong)
        rows.append((f"{site}, {name}" if several else name, shown, f"{size:.2f}"))
    note = (
        "p-values are averages over twenty draws of the posterior; Holm's procedure decides which of them count. Sizes are means "
        "and correlations of normal scores, for zeros a ratio, for outliers a count."
    )
    asked = tuple((kind, text) for kind, text in ABOUT.items() if kind in set(found.asked["kind"]))
    sections = [
        *((Section("Findings", (Sentences(findings),)),) if findings else ()),
        Section("What was asked of the data", (Grid("", note, ("question", "p", "size"), tuple(rows), asked),)),
    ]
    if found.skipped:
        sections.append(Section("What was not checked", (Sentences(tuple(map(_sentence, found.skipped))),)))
    return Page(
        kicker="Check of a model",
        title=f"The model of {', '.join(density.observed)}",
        description=found.verdict,
        facts=facts,
        sections=tuple(sections),
        footer=footer(versions()),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
