"""Findings of a report in sentences: who is better, and what is missing."""

from math import isnan

import numpy as np
from scipy.stats import skew

from bnnzoo.apps.reporting.choices import LIKELIHOODS, MAX_SKEWNESS
from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.repeated_splits import repeat_findings
from bnnzoo.apps.reporting.report_verdicts import warning
from bnnzoo.apps.reporting.results import Fitted, Results, TreeResults, can_be_split, paired_difference
from bnnzoo.diagnostics.verdicts import MIN_GAP

__all__ = ["differences", "findings", "missing"]

OF_PREDICTIONS = {
    "predictions_observed_data": "no scores and no calibration",
    "predictions_log_likelihood": "no log density",
    "predictions": "no draws of new observations",
    "conditional": "no split into aleatoric and epistemic uncertainty, and no comparison in function space",
}
OF_FIT = {
    "log_likelihood": "no leave-one-out cross-validation",
    "posterior": "no posterior of the parameters",
    "sample_stats": "no divergences, energies and importance weights",
    "posterior_predictive": "no posterior predictive check",
}
NAMES_IN_TRAINING = {
    "predictions_observed_data": "observed_data",
    "predictions_log_likelihood": "log_likelihood",
    "predictions": "posterior_predictive",
}


def findings(comparison: Comparison) -> list[str]:
    """Return a summary of the results in a few sentences, with their limitations."""
    of_scores = repeat_findings(comparison.repeats) or differences(comparison)
    sentences = [*(each.paragraph(score=False) for each in comparison.verdicts), *of_scores]
    table = comparison.table
    if LIKELIHOODS[comparison.likelihood].support == "real" and table.task != "classification":
        y = table.y_loc + table.y_scale * np.asarray(table.y_train, dtype=float)
        if y.min() > 0 and skew(y) > MAX_SKEWNESS:  # a target for which Gaussian noise is a poor choice
            sentences.append(
                f"All values of {table.target} are positive and skewed to the right (skewness {skew(y):.1f}), which Gaussian "
                f"noise is not: intervals may reach below zero. Choose --likelihood gamma or log_normal instead, or predict the "
                f"logarithm of {table.target}."
            )
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
        found = paired_difference(fitted, first)
        if isnan(found.difference):
            continue
        sentences.append(
            f"{fitted.name} compared with {first.name} in log density on {results.rows} observations: "
            f"{found.verdict(MIN_GAP)} ({found.weighed(MIN_GAP)})."
        )
    for fitted in results.fitted:
        gaps = {baseline.name: paired_difference(fitted, baseline) for baseline in results.baselines}
        rivals = [name for name, gap in gaps.items() if not gap.difference > gap.clear_from]
        if rivals:
            described = " and ".join(f"{name} ({gaps[name].weighed(MIN_GAP)})" for name in rivals)
            sentences.append(f"{fitted.name} is not clearly better than {described}.")
    return sentences


def missing(results: TreeResults) -> tuple[str, ...]:
    """Return a sentence for each tree that lacks a group: which, and what the report leaves out for it."""
    sentences = [f"{one.name} has {_listed(gaps)}." for one in results.fitted if (gaps := _gaps(one, results))]
    return (*results.notes, *sentences)


def _gaps(fitted: Fitted, results: TreeResults) -> list[str]:
    names = NAMES_IN_TRAINING if results.rows == "training" else {}
    gaps = {names.get(group, group): loss for group, loss in OF_PREDICTIONS.items() if not fitted.has(group)}
    if results.classes:  # whose probabilities are all that scores need
        gaps = {group: loss for group, loss in gaps.items() if not group.endswith(("likelihood", "predictions"))}
    if fitted.has("conditional") and not can_be_split(fitted.test):
        gaps["conditional/variance"] = "no split into aleatoric and epistemic uncertainty"
    for group, loss in OF_FIT.items():
        if group not in fitted.train.children:
            gaps[group] = f"{gaps[group]} and {loss}" if group in gaps else loss
    return [f"no group {group} ({loss})" for group, loss in gaps.items()]


def _listed(gaps: list[str]) -> str:
    return gaps[0] if len(gaps) == 1 else f"{', '.join(gaps[:-1])} and {gaps[-1]}"
