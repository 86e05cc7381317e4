"""The table of scores, for the terminal and the report, and a summary of what it shows."""

from collections.abc import Mapping
from math import isnan
from typing import Any

import numpy as np
from scipy.stats import skew

from bnnzoo.apps.reporting.choices import LIKELIHOODS
from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.page_blocks import Cell, Grid
from bnnzoo.apps.reporting.repeats import repeat_findings
from bnnzoo.apps.reporting.results import Baseline, Fitted, Results
from bnnzoo.apps.reporting.scores import log_density
from bnnzoo.apps.reporting.verdicts import warning
from bnnzoo.apps.tables import Table
from bnnzoo.core.fit_warnings import MAX_RHAT, MIN_ESS
from bnnzoo.diagnostics.verdicts import MIN_GAP
from bnnzoo.trees import detectable_difference, power_in_words

__all__ = ["columns", "differences", "findings", "rows", "score_grid", "wall_time"]

MAX_SKEWNESS = 1.0


def columns(results: Results, *, brief: bool = False) -> list[tuple[str, str]]:
    """Return the label and definition of each column; ``brief`` omits some for narrow terminals."""
    reference = results.fitted[0].name
    difference = (
        f"log density vs {reference}",
        f"Difference of the mean log density from that of {reference}, with its standard error over observations; in brackets, "
        "the smallest difference that so many observations show in 80% of comparisons.",
    )
    gradients = ("gradients", "Number of gradients of the log density.")
    return [
        *((score.label, score.explanation) for score in results.scores if score.is_brief or not brief),
        *([] if brief else [difference]),
        (
            "worst R-hat",
            f"Largest R-hat of the predictions, which should be at most {MAX_RHAT}. It does not apply to independent draws.",
        ),
        ("min ESS", "Smallest effective sample size of a prediction."),
        *([] if brief else [gradients]),
        ("seconds", "Wall time of the fit."),
        ("compiling", "How much of it was compiling, which another fit of the model in the same process does without."),
    ]


def rows(results: Results, *, brief: bool = False) -> list[tuple[str, list[Cell]]]:
    """Return the name and the cells of each method, in the order of :func:`columns`."""
    best = {
        score.label: score.best({fitted.name: fitted.scores[score.label] for fitted in results.fitted})
        for score in results.scores
    }
    several = len(results.fitted) > 1
    everyone: list[Fitted | Baseline] = [*results.fitted, *results.baselines]
    shown = {
        score.label: score.shown({one.name: one.scores[score.label] for one in everyone}) for score in results.scores
    }
    table = []
    for fitted in results.fitted:
        scores = [
            Cell(shown[score.label][fitted.name], several and best[score.label] == fitted.name)
            for score in results.scores
            if score.is_brief or not brief
        ]
        rhat, ess, gradients, *seconds = _sampling(fitted)
        difference = _difference(fitted, results.fitted[0])
        table.append((fitted.name, [*scores, *([] if brief else [difference]), rhat, ess]))
        table[-1][1].extend(seconds if brief else [gradients, *seconds])
    return table + [_baseline_row(baseline, results, shown, brief) for baseline in results.baselines]


def _baseline_row(
    baseline: Baseline, results: Results, shown: Mapping[str, Mapping[str, str]], brief: bool
) -> tuple[str, list[Cell]]:
    scores = [Cell(shown[score.label][baseline.name]) for score in results.scores if score.is_brief or not brief]
    difference = [] if brief else [_difference(baseline, results.fitted[0])]
    return baseline.name, [*scores, *difference, *[Cell("–")] * (4 if brief else 5)]


def score_grid(results: Results) -> Grid:
    """Return the table of scores of a page."""
    labels = columns(results)
    table: list[tuple[str | Cell, ...]] = [(name, *cells) for name, cells in rows(results)]
    return Grid("", "", ("method", *(label for label, _ in labels)), tuple(table), tuple(labels))


def findings(comparison: Comparison) -> list[str]:
    """Return a summary of the results in a few sentences, with their limitations."""
    skewed = _skewed_target(comparison.table) if LIKELIHOODS[comparison.likelihood].support == "real" else []
    of_scores = repeat_findings(comparison.repeats) or differences(comparison)
    sentences = [*(each.paragraph(score=False) for each in comparison.verdicts), *of_scores, *skewed]
    sentences += [text for fitted in comparison.fitted if (text := warning(fitted, command=True))]
    num_rows = len(comparison.table.y_test)
    if not comparison.repeats:
        sentences.append(
            f"All scores are from one split with {num_rows} held-out observations; another split would give other values "
            "(bnnzoo compare --repeats)."
        )
    return sentences


def differences(results: Results) -> list[str]:
    """Return how the log densities of methods differ from that of the first, and from those of simple models."""
    sentences = []
    first, *others = results.fitted
    for fitted in others:
        gap, error = _paired_difference(fitted, first)
        if isnan(gap):
            continue
        is_clear = abs(gap) >= max(2 * error, MIN_GAP)
        verdict = "no clear difference" if not is_clear else ("better" if gap > 0 else "worse")
        sentences.append(
            f"{fitted.name} compared with {first.name} in log density on {results.rows} observations: {verdict} "
            f"({_weighed(gap, error, _num_rows(fitted))})."
        )
    return sentences + _beaten_by_baselines(results)


def _beaten_by_baselines(results: Results) -> list[str]:
    """Name for each method the simple models that it is not clearly better than."""
    sentences: list[str] = []
    for fitted in results.fitted:
        gaps = {baseline.name: _paired_difference(fitted, baseline) for baseline in results.baselines}
        rivals = [name for name, (gap, error) in gaps.items() if gap <= 2 * error or isnan(error)]
        if rivals:
            described = " and ".join(f"{name} ({_weighed(*gaps[name], _num_rows(fitted))})" for name in rivals)
            sentences.append(f"{fitted.name} is not clearly better than {described}.")
    return sentences


def _weighed(gap: float, error: float, num_rows: int) -> str:
    """Return a difference with its standard error, and what so many rows show."""
    power = "" if isnan(error) else f"; {power_in_words(gap, error, num_rows, MIN_GAP)}"
    return f"{gap:+.3f}, standard error {error:.3f}{power}"


def _skewed_target(table: Table) -> list[str]:
    """Point out a target for which Gaussian noise is a poor choice."""
    y = table.y_loc + table.y_scale * np.asarray(table.y_train, dtype=float)
    if table.task == "classification" or y.min() <= 0 or not skew(y) > MAX_SKEWNESS:
        return []
    return [
        f"All values of {table.target} are positive and skewed to the right (skewness {skew(y):.1f}), which Gaussian noise is "
        f"not: intervals may reach below zero. Choose --likelihood gamma or log_normal instead, or predict the logarithm of "
        f"{table.target}."
    ]


def wall_time(attributes: Mapping[Any, Any]) -> tuple[str, str]:
    """Return the seconds of a fit, and those of them that were compiling, as far as the attributes of its tree say."""
    found = (attributes.get(name) for name in ("seconds", "seconds_compiling"))
    seconds, compiling = ("–" if value is None else f"{float(value):.1f}" for value in found)
    return seconds, compiling


def _difference(fitted: Fitted | Baseline, reference: Fitted) -> Cell:
    if fitted is reference:
        return Cell("reference")
    gap, error = _paired_difference(fitted, reference)
    return Cell("–" if isnan(gap) else f"{gap:+.3f} ± {error:.3f} ({detectable_difference(error):.3f})")


def _num_rows(fitted: Fitted) -> int:
    return len(log_density(fitted.test))


def _paired_difference(fitted: Fitted | Baseline, reference: Fitted | Baseline) -> tuple[float, float]:
    if any(isnan(one.scores["log density"]) for one in (fitted, reference)):
        return float("nan"), float("nan")
    gaps = log_density(fitted.test) - log_density(reference.test)
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan")


def _sampling(fitted: Fitted) -> list[Cell]:
    attributes = fitted.test.attrs
    rhat, ess = fitted.worst_rhat, fitted.min_ess
    return [
        Cell("–" if isnan(rhat) else f"{rhat:.3f}", is_warning=rhat > MAX_RHAT),
        Cell("–" if isnan(ess) else f"{ess:.0f}", is_warning=fitted.is_chain and ess < MIN_ESS),
        Cell(f"{attributes['num_gradients']:,}" if "num_gradients" in attributes else "–"),
        *(Cell(text) for text in wall_time(attributes)),
    ]
