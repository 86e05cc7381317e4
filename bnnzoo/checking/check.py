"""``check``: what a model misses in its data, what its prior and its fit are worth, and what to do about it."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bnnzoo.checking.check_page import page_of
from bnnzoo.checking.findings import Finding, of_conflict, of_prior_prediction, of_question
from bnnzoo.checking.misfit import Question, questions
from bnnzoo.checking.normal_scores import Scores, scores_of
from bnnzoo.checking.prior_conflict import conflicts, power_scaling, prior_predictions
from bnnzoo.checking.repeats import heap, repeated_rows
from bnnzoo.checking.variables import Variables, is_outcome, variables_beside, variables_of
from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.folding import folded
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.settings import NonNegativeCount, Seed, check_argument
from bnnzoo.core.types import Model
from bnnzoo.diagnostics import loo
from bnnzoo.documents.folders import new_folder
from bnnzoo.engine.files import whole_file
from bnnzoo.inference import NUTS, fit
from bnnzoo.predictive import posterior_predictive, prior_predictive
from bnnzoo.trees import refuse_other_kind
from bnnzoo.trees.multiple_tests import holm
from bnnzoo.validation import sbc, sbc_verdict

__all__ = ["LEVEL", "ModelCheck", "check"]

LEVEL = 0.03
"""Probability that any question about the data is answered with a fault of a model that is right."""

PRIOR_LEVEL, PREDICTION_LEVEL = 0.005, 0.002
"""The same for priors of latent values, and for mean and spread of each site under the whole prior."""

NUM_DATA_SETS = 1000
"""Drawn from the prior."""

DEPENDENCE = {"curve", "groups", "neighbours", "order", "slopes", "product"}
EXPLAINED_BY = {
    "spread": DEPENDENCE | {"spread", "spread of groups"},
    "spread of groups": DEPENDENCE | {"spread"},
    "neighbours": {"curve", "neighbours"},
    "order": {"curve", "neighbours", "groups"},
    "level": DEPENDENCE,
    "dispersion": DEPENDENCE | {"zeros", "outliers"},
    "shape": DEPENDENCE | {"zeros", "outliers", "dispersion", "spread", "spread of groups", "limit", "level"},
    "outliers": DEPENDENCE | {"dispersion", "shape", "smallest", "largest"},
    "smallest": DEPENDENCE | {"dispersion", "shape", "outliers", "spread", "limit"},
    "largest": DEPENDENCE | {"dispersion", "shape", "outliers", "spread", "limit"},
    "zeros": {"dispersion"},
}
"""Which kinds of findings, if they are graver, explain another of the same site."""


@dataclass(frozen=True, repr=False)
class ModelCheck:
    """What a check found.

    Attributes
    ----------
    findings : tuple of Finding
        What the fit warns of, faults with the gravest at the top, and notes.
    asked : DataFrame
        Every question that was asked of the data: ``site``, ``kind``, ``about``, ``p_value``, ``size``.
    skipped : tuple of str
        What was not checked, and why.
    posterior : Posterior
        The fit behind it.
    """

    findings: tuple[Finding, ...]
    asked: pd.DataFrame
    skipped: tuple[str, ...]
    posterior: Posterior

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that count against the model."""
        return tuple(each for each in self.findings if each.is_fault)

    @property
    def verdict(self) -> str:
        """What comes out, in one sentence."""
        count, asked = len(self.faults), f"({len(self.asked)} questions to the data)"
        doubt = any(each.kind == "fit" for each in self.findings)
        found = f"The model has {count} fault{'s' * (count > 1)}" if count else "No check finds fault with the model"
        return f"{found} {asked}{', but its fit is in doubt' if doubt else ''}."

    def __repr__(self) -> str:
        """Return verdict, findings and what was left out."""
        lines = [self.verdict]
        lines += [f"- {each.sentence} {each.advice}" for each in self.findings]
        lines += [f"- Not checked: {each}" for each in self.skipped]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return verdict and findings; the questions unfold."""
        found = "".join(f"<li>{escape(f'{each.sentence} {each.advice}')}</li>" for each in self.findings)
        asked = self.asked.sort_values("p_value").to_html(index=False, float_format="{:.4f}".format)
        return f"<p>{escape(self.verdict)}</p><ul>{found}</ul>{folded('what was asked', asked)}"

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "verdict": self.verdict,
            "findings": [vars(each) for each in self.findings],
            "asked": self.asked.to_dict("records"),
            "skipped": list(self.skipped),
            "method": self.posterior.info.method,
        }

    def save(self, path: str | Path) -> Path:
        """Write ``check.html`` and ``check.json`` into a new folder, which is there whole or not at all.

        Raises
        ------
        FileExistsError, FileNotFoundError, PermissionError
            If the folder exists or cannot be created.
        """
        with new_folder(Path(path), "path") as folder:
            with whole_file(folder / "check.json") as partial:
                partial.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
            with whole_file(folder / "check.html") as partial:
                partial.write_text(page_of(self).html(), encoding="utf-8")
        return Path(path)


def check(
    model: Model | Posterior,
    *data: Any,
    method: Method | None = None,
    beside: pd.DataFrame | Mapping[str, Any] | None = None,
    num_simulations: int = 0,
    seed: int = 0,
    **named: Any,
) -> ModelCheck:
    r"""Check a model against its data: what it misses, whether its prior agrees, and whether the fit can be trusted.

    The model is fitted. Under twenty draws of the posterior every observation is turned into a score that is standard normal if
    the model is right, whatever the likelihood; and the scores are asked for what they may not depend on: each argument of
    the model and each variable of ``beside`` (a curve, the spread, neighbours), groups, products and slopes, the fitted mean
    (a wrong link, a variance that changes with it), the order of rows; and for level, dispersion, shape, outliers and zeros.
    Latent values are compared with their priors, and the data with data sets from the prior. Repeated rows, values that pile
    up at a limit, and what ``fit`` and leave-one-out cross-validation warn of are reported, too.

    Of models that are right fewer than one in twenty are found at fault; the documentation says what was measured.

    Parameters
    ----------
    model : callable or Posterior
        Any Pyro model with observed sites, or a fit of one, which is then not repeated.
    *data
        Its arguments, as for :func:`bnnzoo.fit`.
    method : Method, optional
        How to fit. Default: ``NUTS()``. What another method gets wrong looks like a fault of the model.
    beside : DataFrame or mapping, optional
        Variables, one value for each row, that the model does not use but perhaps should: other covariates, groups, times.
    num_simulations : int
        Data sets for simulation-based calibration (:func:`bnnzoo.validation.sbc`) of model and method, each of which is fitted.
        Default: none.
    seed : int
    **named
        Arguments of the model by name.

    Returns
    -------
    ModelCheck
        ``print`` shows a verdict and what to do; ``save`` writes a page and JSON.

    Raises
    ------
    ValueError
        If the model observes nothing, or ``beside`` has other rows.

    References
    ----------
    Gelman, Vehtari, Simpson, Margossian, Carpenter, Yao, Kennedy, Gabry, Bürkner and Modrák (2020), Bayesian workflow,
    arXiv:2011.01808. Johnson (2007), Bayesian model assessment using pivotal quantities, Bayesian Analysis 2.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.linspace(-2, 2, 200)
    >>> y = x**2 + 0.5 * torch.randn(200, generator=generator)
    >>> def line(x, y):
    ...     a, b = (pyro.sample(name, dist.Normal(0.0, 5.0)) for name in "ab")
    ...     sigma = pyro.sample("sigma", dist.HalfNormal(5.0))
    ...     with pyro.plate("rows", len(x)):
    ...         pyro.sample("y", dist.Normal(a + b * x, sigma), obs=y)
    >>> found = bz.check(line, x, y, method=bz.NUTS(num_warmup=300, num_draws=300))
    >>> any(each.sentence.startswith("Residuals of y bend with x") for each in found.faults)
    True
    """
    check_argument("check", "num_simulations", num_simulations, NonNegativeCount)
    check_argument("check", "seed", seed, Seed)
    posterior, warned = _fitted(model, data, named, method or NUTS(), int(seed))
    density = posterior.density
    if not density.has_data or not density.observed:
        raise ValueError(
            "check compares a model with its observations, but "
            + (f"the likelihood is the factor {density.factors[0]!r}." if density.factors else "none is observed.")
        )
    others, outcomes = _beside(beside, density)
    variables = variables_of(density, posterior.info).joined(others).limited()
    theta = posterior.draws().flatten(0, 1)
    scored = scores_of(density, theta, int(seed))
    skipped = [*_unscored(density, scored), *(f"{name} in beside, which is the outcome." for name in outcomes)]
    asked: list[tuple[str, Question]] = []
    faults: list[Finding] = []
    for each in scored:
        fits = each.num_rows == density.num_data
        here = variables.at(each.rows) if fits else Variables({}, {})
        asked += [(each.name, question) for question in questions(each, here)]
        faults += [found for found in (repeated_rows(each, here), heap(each)) if found]
    faults += [of_question(*each) for each in _rejected(asked, [each.p_value for _, each in asked], LEVEL)]
    priors = list(conflicts(density, theta, int(seed)))
    in_conflict = _rejected(priors, [each.p_value for each in priors], PRIOR_LEVEL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = posterior_predictive(posterior, *posterior.density.data, weights=False)
    except ValueError:
        fitted = xr.DataTree()
    scaled = power_scaling(fitted, [each.name for each in in_conflict])
    faults += [of_conflict(each, scaled.get(each.name)) for each in in_conflict]
    from_prior, why = _from_prior(density, int(seed))
    notes = [each for each in from_prior if not each.is_fault]
    faults += [each for each in from_prior if each.is_fault]
    notes += list(_of_loo(fitted))
    if num_simulations:
        faults += list(_of_simulations(posterior, method or NUTS(), num_simulations, int(seed)))
    else:
        skipped.append("calibration by simulation; pass num_simulations=50, which takes as many fits.")
    frame = pd.DataFrame(
        [(site, each.kind, each.about, each.p_value, each.size) for site, each in asked],
        columns=["site", "kind", "about", "p_value", "size"],
    )
    return ModelCheck((*warned, *_without_explained(faults), *notes), frame, (*skipped, *why), posterior)


def _rejected[Asked](asked: Sequence[Asked], p_values: Sequence[float], level: float) -> list[Asked]:
    return [each for each, is_wrong in zip(asked, holm(p_values, level), strict=True) if is_wrong]


def _fitted(
    model: Model | Posterior, data: tuple[Any, ...], named: Mapping[str, Any], method: Method, seed: int
) -> tuple[Posterior, list[Finding]]:
    if not callable(model):
        refuse_other_kind(model, Posterior, "model", "a model or a posterior from bnnzoo.fit")
        if data or named:
            raise TypeError("check(posterior): leave the data out, which the posterior has.")
        return model, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = fit(model, method, *data, seed=seed, progress=False, **named)
    found = []
    for each in caught:
        if issubclass(each.category, FitWarning):
            kind, text = each.category.__name__.removesuffix("Warning"), str(each.message)
            found.append(Finding("fit", False, f"The fit warns: {text}", "Mend this first.", {"about": kind}))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return posterior, found


def _beside(beside: pd.DataFrame | Mapping[str, Any] | None, density: LogDensity) -> tuple[Variables, tuple[str, ...]]:
    """Return the variables beside a model, and the names of those that are its outcome."""
    if beside is None:
        return Variables({}, {}), ()
    refuse_other_kind(beside, pd.DataFrame | Mapping, "beside", "a frame, or a mapping such as {'clinic': clinic}")
    columns = {str(name): np.asarray(values) for name, values in beside.items()}
    for name, values in columns.items():
        if values.shape != (density.num_data,):
            found = f"{len(values)} rows" if values.ndim == 1 else f"the shape {list(values.shape)}"
            raise ValueError(
                f"{name!r} in beside has {found}, but the data have {density.num_data} rows: one value each."
            )
    outcomes = tuple(name for name, values in columns.items() if is_outcome(density, values))
    return variables_beside(
        pd.DataFrame({name: each for name, each in columns.items() if name not in outcomes})
    ), outcomes


def _unscored(density: LogDensity, scored: list[Scores]) -> Iterator[str]:
    for site in density.observed:
        if not any(each.name == site or each.name.startswith(f"{site}[") for each in scored):
            yield f"the observations of {site}, which is a single value or depends on discrete states that tie its rows."
    for factor in density.factors:
        yield f"the factor {factor}, from which no data can be drawn."


def _from_prior(density: LogDensity, seed: int) -> tuple[list[Finding], tuple[str, ...]]:
    try:
        tree = prior_predictive(density.model, *density.data, num_draws=NUM_DATA_SETS, seed=seed, weights=False)
    except (NotImplementedError, ValueError, RuntimeError) as error:
        return [], (f"data from the prior, which cannot be drawn ({str(error).splitlines()[0]})",)
    found = [of_prior_prediction(each, PREDICTION_LEVEL) for each in prior_predictions(tree)]
    return [each for each in found if each], ()


def _of_loo(fitted: xr.DataTree) -> Iterator[Finding]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = loo(fitted)
    except ValueError:
        return
    bad = np.flatnonzero(~(found.pareto_k.to_numpy().ravel() <= found.good_k))
    if len(bad):
        named = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        yield Finding(
            "influence",
            False,
            f"{len(bad)} of {found.n_data_points} observations move the posterior so much that leaving them out cannot be "
            f"approximated (Pareto k above {found.good_k:.2f}; rows {named}).",
            "Look at these rows; validation.reloo fits again without each of them.",
            {"size": float(len(bad))},
        )


def _of_simulations(posterior: Posterior, method: Method, number: int, seed: int) -> Iterator[Finding]:
    density = posterior.density
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of single simulations
        ranks = sbc(density.model, method, *density.data, num_simulations=number, seed=seed, progress=False)
    table = sbc_verdict(ranks, 1 - PRIOR_LEVEL)
    for name, row in table[~table["uniform"]].iterrows():
        yield Finding(
            "calibration",
            True,
            f"Over {number} data sets from the prior, {type(method).__name__} is not calibrated: {row['finding']} for {name} "
            f"(p = {row['p']:.4f}).",
            "Trust no interval before this is understood: the method is too far from the posterior, or the program is wrong.",
            {"site": str(name), "p_value": float(row["p"]), "size": float(row["mean"])},
        )


def _gravity(finding: Finding) -> tuple[bool, float]:
    """Sort priors that the data contradict first, since they bend all else."""
    return not finding.kind.startswith("prior"), float(finding.evidence.get("p_value", 0.0))


def _without_explained(faults: list[Finding]) -> list[Finding]:
    """Leave out findings that a graver one about the same site explains, and slopes of a variable that has none at all."""
    kept: list[Finding] = []
    # whose residuals rise or fall: a slope that all levels of a grouping have in common is missing
    without_slope = {
        (each.evidence["site"], each.evidence["about"])
        for each in faults
        if each.kind == "curve" and each.evidence.get("shape") in ("rise", "fall")
    }
    for each in sorted(faults, key=_gravity):
        site, about = each.evidence.get("site"), str(each.evidence.get("about", ""))
        if each.kind == "slopes" and (site, about.split(", ")[0]) in without_slope:
            continue
        explained = {other.kind for other in kept if other.evidence.get("site") == site} & EXPLAINED_BY.get(
            each.kind, set()
        )
        if not explained:
            kept.append(each)
    return kept
