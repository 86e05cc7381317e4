"""Verdicts on methods: on the convergence of each, and against the reference."""

import json
import math
from collections.abc import Mapping, Sequence

import pandas as pd
import xarray as xr

from bnnzoo.apps.reporting.results import Fitted
from bnnzoo.core.fit_warnings import MAX_RHAT, MIN_ESS
from bnnzoo.diagnostics import psis
from bnnzoo.diagnostics.comparison_verdict import Verdict
from bnnzoo.diagnostics.verdicts import verdicts
from bnnzoo.validation import sbc_verdict

__all__ = ["against_reference", "pareto", "troubles", "verdict", "warning"]

KINDS = {"mcmc": "Markov chains", "iid": "independent draws of an approximation", "ensemble": "members of an ensemble"}
OF_ROWS = (
    "conditional",
    "predictions_log_likelihood",
    "predictions_constant_data",
    "predictions",
    "predictions_observed_data",
)
OF_FIT = ("posterior", "log_likelihood", "log_prior", "sample_stats", "posterior_predictive", "observed_data")


def troubles(fitted: Fitted) -> list[str]:
    """Return what is wrong with the draws of a method, nothing if no diagnostic complains."""
    stats = fitted.stats()
    divergences = int(stats["diverging"].sum()) if "diverging" in stats else 0
    what = "a prediction" if fitted.has("conditional") else "a parameter"
    found = []
    if fitted.worst_rhat > MAX_RHAT:
        found.append(f"the R-hat of {what} is {fitted.worst_rhat:.3f}")
    if fitted.is_chain and fitted.min_ess < MIN_ESS:
        found.append(f"{what} has an effective sample size of {fitted.min_ess:.0f}")
    if divergences:
        found.append(f"{divergences} transitions diverged")
    if fitted.test.attrs["complete"] == "no":
        found.append("the fit was interrupted")
    return found


def warning(fitted: Fitted, *, command: bool = False) -> str:
    """Return a sentence about trouble and what to change, empty if there is none; ``command`` names options of ``bnnzoo``."""
    found = troubles(fitted)
    if not found:
        return ""
    return f"{fitted.name} has not fully converged: {', '.join(found)}. {_advice(fitted, command)}"


def verdict(fitted: Fitted) -> str:
    """Return what the draws of a method are and whether the diagnostics that apply to them complain."""
    kind = str(fitted.test.attrs["sampling"])
    opening = f"{fitted.name}: {KINDS.get(kind, 'draws of unknown origin (no attribute sampling)')}"
    if trouble := warning(fitted):
        return f"{opening}. {trouble}"
    if kind == "mcmc":
        if math.isnan(fitted.worst_rhat):
            return f"{opening}, too few for diagnostics."
        return (
            f"{opening}, without signs of trouble (worst R-hat {fitted.worst_rhat:.3f}, smallest effective sample size "
            f"{fitted.min_ess:.0f})."
        )
    if kind == "iid":
        return f"{opening}, to which R-hat does not apply. {_of_approximation(fitted)}"
    if kind == "ensemble":
        return (
            f"{opening}: no diagnostic of convergence applies. Judge it by its predictions and by the distances below."
        )
    return f"{opening}: R-hat is not computed."


def pareto(fitted: Fitted) -> tuple[float, float, float] | None:
    """Return Pareto k, its threshold and the effective sample size of importance weights; None if there are no weights."""
    try:
        found = psis(fitted.train)
    except ValueError:
        return None
    return float(found["pareto_k"]), float(found["good_k"]), float(found["ess"])


def _of_approximation(fitted: Fitted) -> str:
    found = pareto(fitted)
    k, ess = (fitted.train.attrs.get(name) for name in ("psis_pareto_k", "psis_ess"))
    if k is not None and k <= 0.7:
        return f"They were resampled by importance weights whose Pareto k is {k:.2f}, and are worth {ess:.0f} independent ones."
    if k is not None:
        return f"The weights by which they were resampled have Pareto k {k:.2f}, above 0.70: they miss a part of the posterior."
    if found is None:
        return "Its density is not in the tree (lp and log_q in sample_stats), so nothing tells how far it is from the posterior."
    k, threshold, _ = found
    if k <= threshold:
        return f"Pareto k is {k:.2f}, at most {threshold:.2f}: importance weights can correct it (diagnostics.psis_resample)."
    return (
        f"Pareto k is {k:.2f}, above {threshold:.2f}: the approximation misses a part of the posterior. Its predictions may be "
        "good nevertheless; compare them with those of a sampler."
    )


def _advice(fitted: Fitted, command: bool) -> str:
    """Say what to change, with the present settings."""
    config = json.loads(fitted.train.attrs["config"])
    known = [
        f"{f'--{name.replace("_", "-")}' if command else name} (now {config[name]})"
        for name in ("num_warmup", "num_draws")
        if name in config
    ]
    advice = f"Give larger {' and '.join(known)}" if known else "Run it longer"
    diverged = any("diverged" in trouble for trouble in troubles(fitted))
    where = ", in a script of your own" if command else ""
    return f"{advice} before relying on it." + (
        f" Divergences call for a larger target_accept{where}." if diverged else ""
    )


def against_reference(
    fitted: Sequence[Fitted], calibration: Mapping[str, xr.DataTree | pd.DataFrame] | None = None
) -> tuple[Verdict, ...]:
    """Return a verdict on each method but the first, which is the reference; none where there is only one.

    Parameters
    ----------
    fitted : sequence of Fitted
    calibration : mapping of str to DataTree or DataFrame, optional
        Simulation-based calibration of some of the methods: what ``sbc`` or ``sbc_verdict`` returned.

    Raises
    ------
    ValueError
        If calibration is of no method, of the first, or holds something else.
    """
    tables = {
        name: sbc_verdict(found) if isinstance(found, xr.DataTree) else found
        for name, found in (calibration or {}).items()
    }
    if len(fitted) < 2 and not tables:
        return ()
    trees = {one.name: _compared(one) for one in fitted}
    return tuple(verdicts(trees, fitted[0].name, calibration=tables).values())


def _compared(fitted: Fitted) -> xr.DataTree:
    """Return sites of the fit, and predictions of the rows of the report."""
    groups = {name: fitted.test[name].to_dataset() for name in OF_ROWS if fitted.has(name)}
    groups |= {name: fitted.train[name].to_dataset() for name in OF_FIT if name in fitted.train.children}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs |= fitted.train.attrs | {"sampling": fitted.test.attrs.get("sampling", "mcmc")}
    return tree
