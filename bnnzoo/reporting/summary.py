"""The table of a results, for the terminal and the report, and a summary of its findings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

import numpy as np
from scipy.stats import skew

from bnnzoo.core.fit_warnings import MAX_RHAT, MIN_ESS
from bnnzoo.reporting.results import Fitted, Results
from bnnzoo.reporting.scores import log_density
from bnnzoo.tables import Table

__all__ = ["Cell", "columns", "findings", "rows"]

MAX_SKEWNESS = 1.0


@dataclass(frozen=True)
class Cell:
    """A cell of the table: its text, and whether it is the best of its column or a warning."""

    text: str
    is_best: bool = False
    is_warning: bool = False


def columns(results: Results, *, brief: bool = False) -> list[tuple[str, str]]:
    """Return the label and definition of each column; ``brief`` omits some for narrow terminals."""
    reference = results.fitted[0].name
    difference = (
        f"log density vs {reference}",
        f"Difference of the mean log density from that of {reference}, with its standard error over held-out observations.",
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
        ("seconds", "Wall time of the fit, including compilation."),
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
        rhat, ess, gradients, seconds = _sampling(fitted)
        difference = _difference(fitted, results.fitted[0])
        table.append((fitted.name, [*scores, *([] if brief else [difference]), rhat, ess]))
        table[-1][1].extend([seconds] if brief else [gradients, seconds])
    return table + [_baseline_row(baseline, results, shown, brief) for baseline in results.baselines]


def _baseline_row(
    baseline: Baseline, results: Results, shown: Mapping[str, Mapping[str, str]], brief: bool
) -> tuple[str, list[Cell]]:
    scores = [Cell(shown[score.label][baseline.name]) for score in results.scores if score.is_brief or not brief]
    difference = [] if brief else [_difference(baseline, results.fitted[0])]
    return baseline.name, [*scores, *difference, *[Cell("–")] * (3 if brief else 4)]


def findings(results: Results) -> list[str]:
    """Return a summary of the results in a few sentences, with their limitations."""
    sentences = []
    first, *others = results.fitted
    for fitted in others:
        gap, error = _paired_difference(fitted, first)
        verdict = "no clear difference" if abs(gap) < 2 * error else ("better" if gap > 0 else "worse")
        sentences.append(
            f"{fitted.name} compared with {first.name} in log density on held-out observations: {verdict} "
            f"({gap:+.3f}, standard error {error:.3f})."
        )
    sentences += _beaten_by_baselines(results) + _skewed_target(results.table)
    sentences += [warning for fitted in results.fitted if (warning := _warning(fitted))]
    num_rows = len(results.table.y_test)
    sentences.append(
        f"All scores are from one split with {num_rows} held-out observations; another split would give other values."
    )
    return sentences


def _beaten_by_baselines(results: Results) -> list[str]:
    """Name for each method the simple models that it is not clearly better than."""
    sentences = []
    for fitted in results.fitted:
        gaps = {baseline.name: _paired_difference(fitted, baseline) for baseline in results.baselines}
        rivals = [name for name, (gap, error) in gaps.items() if not gap > 2 * error]
        if rivals:
            described = " and ".join(
                f"{name} ({gaps[name][0]:+.3f}, standard error {gaps[name][1]:.3f})" for name in rivals
            )
            sentences.append(f"{fitted.name} is not clearly better than {described}.")
    return sentences


def _skewed_target(table: Table) -> list[str]:
    """Point out a target for which Gaussian noise is a poor choice."""
    y = table.y_loc + table.y_scale * np.asarray(table.y_train, dtype=float)
    if table.task == "classification" or y.min() <= 0 or not skew(y) > MAX_SKEWNESS:
        return []
    return [
        f"All values of {table.target} are positive and skewed to the right (skewness {skew(y):.1f}), which Gaussian noise is "
        f"not: intervals may reach below zero. Predict the logarithm of {table.target} instead."
    ]


def _difference(fitted: Fitted | Baseline, reference: Fitted) -> Cell:
    if fitted is reference:
        return Cell("reference")
    gap, error = _paired_difference(fitted, reference)
    return Cell(f"{gap:+.3f} ± {error:.3f}")


def _paired_difference(fitted: Fitted | Baseline, reference: Fitted | Baseline) -> tuple[float, float]:
    gaps = log_density(fitted.test) - log_density(reference.test)
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan")


def _sampling(fitted: Fitted) -> list[Cell]:
    attributes = fitted.test.attrs
    rhat, ess = fitted.worst_rhat, fitted.min_ess
    return [
        Cell("–" if isnan(rhat) else f"{rhat:.3f}", is_warning=rhat > MAX_RHAT),
        Cell("–" if isnan(ess) else f"{ess:.0f}", is_warning=fitted.is_chain and ess < MIN_ESS),
        Cell(f"{attributes['num_gradients']:,}"),
        Cell(f"{attributes['seconds']:.1f}"),
    ]


def _warning(fitted: Fitted) -> str:
    stats = fitted.train["sample_stats"]
    divergences = int(stats["diverging"].sum()) if "diverging" in stats else 0
    troubles = []
    if fitted.worst_rhat > MAX_RHAT:
        troubles.append(f"the R-hat of a prediction is {fitted.worst_rhat:.3f}")
    if fitted.is_chain and fitted.min_ess < MIN_ESS:
        troubles.append(f"a prediction has an effective sample size of {fitted.min_ess:.0f}")
    if divergences:
        troubles.append(f"{divergences} transitions diverged")
    if fitted.test.attrs["complete"] == "no":
        troubles.append("the fit was interrupted")
    if not troubles:
        return ""
    return f"{fitted.name} has not fully converged: {', '.join(troubles)}. {_advice(fitted, divergences)}"


def _advice(fitted: Fitted, divergences: int) -> str:
    """Say what to change in the command, with the present settings."""
    config = json.loads(fitted.train.attrs["config"])
    known = [
        f"--{name.replace('_', '-')} (now {config[name]})" for name in ("num_warmup", "num_draws") if name in config
    ]
    advice = f"Give larger {' and '.join(known)}" if known else "Run it longer"
    return f"{advice} before relying on it." + (
        " Divergences call for a larger target_accept, in a script of your own." if divergences else ""
    )
