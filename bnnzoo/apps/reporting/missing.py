"""Sections missing from a report, and the group of a tree that each needs."""

from bnnzoo.apps.reporting.parts import can_be_split
from bnnzoo.apps.reporting.results import Fitted, TreeResults

__all__ = ["missing"]

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
