"""``formula``: from a formula and a frame to a Pyro model."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pyro.distributions.torch_distribution import TorchDistributionMixin

from bnnzoo.core.fit_warnings import INSIDE
from bnnzoo.core.program.sites import ModelWarning
from bnnzoo.models.formula.formula_likelihoods import family_of, parameter_of
from bnnzoo.models.formula.formula_sites import FormulaSite, Names, Place, numbers
from bnnzoo.models.formula.frames import as_frame, is_frame, numbers_of, variables_of
from bnnzoo.models.formula.imputation import covariate_scale, imputed
from bnnzoo.models.formula.linear import Intercept
from bnnzoo.models.formula.model import NAMESPACE, Formula
from bnnzoo.models.formula.parsing import Call, FormulaError, Parsed, parse
from bnnzoo.models.formula.predictors import ModelCode, add_predictor, offset_of
from bnnzoo.models.formula.response import Outcome
from bnnzoo.models.formula.writing import ARGUMENTS, write_model
from bnnzoo.models.likelihoods.likelihood import Likelihood
from bnnzoo.models.likelihoods.named import NamedLikelihood

__all__ = ["formula"]

SLOPE, SLOPE_OF_PARAMETER = 2.5, 1.0


def formula(
    text: str | Sequence[str],
    frame: Any,
    likelihood: str | Likelihood | None = None,
    *,
    priors: Mapping[str, TorchDistributionMixin] | None = None,
    new_levels: Literal["refuse", "draw"] = "refuse",
) -> Formula:
    r"""Return the Pyro model of a formula, which any method fits to the frame.

    Terms are those of R and lme4. Population-level terms, with their contrasts, interactions and transforms, are read by
    formulaic: ``age + sex``, ``age * sex``, ``log(dose)``, ``C(site, contr.sum)``. Beside them stand

    - ``(1 + x | g)``: effects that vary among the levels of g, correlated; ``(x || g)`` without correlation, ``(1 | a/b)``
      nested, ``(1 | a:b)`` of combinations;
    - ``s(x, k=10)``: a penalised cubic spline; ``gp(x, k=20, c=1.5)``: a Gaussian process;
    - ``nn(x1, x2, hidden=(20,))``: a Bayesian network, orthogonal to linear effects of its inputs in the same formula;
    - ``offset(log(time))``; ``mi(x)`` for a numeric covariate with missing values.

    The outcome is a column or a function of columns, ``cens(time, event)`` for event times, or ``y | weights(w)``. Further
    formulas are of parameters of the likelihood, as in ``"sigma ~ age"``, on the scale of their links, or of covariates in
    ``mi(x)``.

    Coefficients and predictions are in the units of the data. Inside, columns are centred and coordinates have the scale of
    the data. Rows without an outcome are left out of a fit and can be predicted.

    Parameters
    ----------
    text : str or sequence of str
        One formula, or several, of which the first is that of the outcome.
    frame : DataFrame
        Of pandas or polars, or a mapping of columns: the training data, from which categories, transforms and scales are taken.
    likelihood : str or Likelihood
        Name of a function of `bnnzoo.likelihoods`, or what it returns. By name, priors of its parameters are on the scale of the
        data. Default: ``"gaussian"``.
    priors : mapping of str to Distribution, optional
        Priors of sites by name, in place of those that ``model.priors`` shows. The prior of an intercept with ``_c`` in its name
        is that at the means of the columns.
    new_levels : {"refuse", "draw"}
        Whether levels of groups that the training data did not have are refused at prediction, or drawn from their distribution.

    Returns
    -------
    Formula
        A Pyro model: ``fit(model, method, frame)``, ``predict(posterior, new_frame)``. ``print(model)`` shows its code.

    Raises
    ------
    FormulaError
        If a formula cannot be read, or names what there is not.
    DataError
        If the frame lacks a column, or has missing values where the formula allows none.

    Warns
    -----
    ModelWarning
        If rows have no outcome, or the likelihood is left out where all outcomes are 0 or 1.

    References
    ----------
    Bürkner (2017), brms: an R package for Bayesian multilevel models using Stan, Journal of Statistical Software 80.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0], "sex": ["f", "m", "f", "m"]})
    >>> model = bz.formula("y ~ dose + sex", frame)
    >>> list(model.priors.index)
    ['b_dose', 'b_sex', 'Intercept_c', 'sigma']
    >>> posterior = bz.fit(model, bz.Laplace(), frame, progress=False)
    >>> bz.predict(posterior, {"dose": [1.5], "sex": ["f"]}, num_draws=10)["predictions"]["y"].shape
    (1, 10, 1)
    """
    if new_levels not in ("refuse", "draw"):
        raise FormulaError(f"new_levels={new_levels!r}: write 'refuse' or 'draw'.")
    if not is_frame(frame):
        raise FormulaError(
            f"formula takes the frame as its second argument, and has {type(frame).__name__}: write formula('y ~ x', frame)."
        )
    texts = (text,) if isinstance(text, str) else tuple(text)
    if not texts:
        raise FormulaError("formula has no formula: write formula('y ~ x', frame).")
    first, *others = [parse(each) for each in texts]
    rows, is_asked_for = as_frame(frame), likelihood is not None
    likelihood = "gaussian" if likelihood is None else likelihood
    family = family_of(likelihood)
    outcome = Outcome.of(first, family, rows)
    if censoring := sorted({"event", "censored"} & first.additions.keys()):
        if not family.censored:
            raise FormulaError(
                f"{first.text!r} has censored outcomes, and likelihood {family.name!r} takes none: write likelihood='weibull' or "
                f"'log_normal'."
            )
        if len(censoring) > 1:
            raise FormulaError(f"{first.text!r} says twice which outcomes are censored: write cens(time, event) alone.")
    seen = outcome.seen(rows)
    if not seen.any():
        raise FormulaError(f"No row has an outcome {outcome.texts[0]!r}.")
    if not seen.all():
        warnings.warn(
            f"{int((~seen).sum())} of {len(rows)} rows have no outcome {outcome.texts[0]!r} and are left out of the fit; "
            f"predict(posterior, frame) predicts them.",
            ModelWarning,
            skip_file_prefixes=INSIDE,
        )
    rows = rows[seen]
    if not is_asked_for and set(np.unique(outcome.values(rows))) == {0.0, 1.0}:
        warnings.warn(
            f"All outcomes {outcome.texts[0]!r} are 0 or 1, and the likelihood is Gaussian: write likelihood='bernoulli', or "
            f"likelihood='gaussian' if that is what you want.",
            ModelWarning,
            skip_file_prefixes=INSIDE,
        )
    if twice := set(outcome.needed) & set(variables_of(first.linear, rows)):
        raise FormulaError(f"{first.text!r} has the outcome {min(twice)!r} among its covariates.")
    extra = _others(others, family, first)
    names = Names({*NAMESPACE, *ARGUMENTS, "model", "rows", "mu", "likelihood"})
    names.taken.update(family.parameters)
    program = ModelCode(rows, new_levels == "draw", names)
    _add_imputations(program, (first, *extra.values()), extra)
    predictor = _add_location(program, first, outcome, likelihood)
    made = _add_parameters(program, outcome, likelihood, extra)
    returned = f"return sample_outcome({made}, {predictor}, y{_beside(first)})"
    return write_model(program, texts, outcome, returned, priors or {}, likelihood)


def _others(others: Sequence[Parsed], family: NamedLikelihood, first: Parsed) -> dict[str, Parsed]:
    """Return further formulas by the site of a parameter, or by the covariate that they impute."""
    gaps = {
        call.variables[0] for each in (first, *others) for call in each.calls if call.name == "mi" and call.variables
    }
    found: dict[str, Parsed] = {}
    for parsed in others:
        name = parsed.outcome if parsed.outcome in gaps else parameter_of(family, parsed.outcome, parsed.text)
        if name in found:
            raise FormulaError(
                f"There are two formulas of {parsed.outcome!r}: {found[name].text!r} and {parsed.text!r}."
            )
        if parsed.additions:
            raise FormulaError(f"{parsed.text!r} has weights or censoring, which belong to the formula of the outcome.")
        found[name] = parsed
    return found


def _add_imputations(program: ModelCode, formulas: Sequence[Parsed], extra: Mapping[str, Parsed]) -> None:
    """Add the covariates with gaps, each with its own predictor, before the formulas that use them."""
    waiting: dict[str, Call] = {}
    for parsed in formulas:
        for call in parsed.calls:
            if call.name == "mi" and call.variables:
                waiting.setdefault(call.variables[0], call)
    gaps = {
        name: {call.variables[0] for call in parsed.calls if call.name == "mi" and call.variables}
        for name, parsed in extra.items()
    }
    while waiting:
        ready = [name for name in waiting if not gaps.get(name, set()) & waiting.keys()]
        if not ready:
            raise FormulaError(f"The formulas of {' and '.join(waiting)} impute each other from each other.")
        for name in ready:
            call = waiting.pop(name)
            _, spread = covariate_scale(name, program.frame)
            place = Place(f"{name}_", spread, SLOPE, program.names)
            variable = place.variable(f"mu_{name}")
            rule = "Student-t(3), 0 (the mean of what was seen), 2.5 x its standard deviation"
            intercept = Intercept(0.0, SLOPE * spread, rule)
            own = extra.get(name) or Parsed(f"{name} ~ 1", name)
            add_predictor(program, own, place, variable, intercept, has_rows=False)
            code, rule = f"dist.Exponential({numbers(1 / spread)})", "Exponential, mean the scale of the covariate"
            sd = FormulaSite(f"sigma_{name}", place.variable(f"sigma_{name}"), code, rule, (0.0, spread))
            program.statements.append(sd)
            (program.completed[name],) = program.add(imputed(call, program.frame, place, sd.variable, variable))


def _add_location(program: ModelCode, first: Parsed, outcome: Outcome, likelihood: str | Likelihood) -> str:
    """Add the predictors of the location, and return the likelihood's input as code."""
    offsets = tuple(text for call in first.calls if call.name == "offset" for text in call.variables)
    intercept, scale = outcome.scales(program.frame, offset_of(offsets, program.frame))
    found = []
    for label, where, unit in _outputs(outcome, likelihood, intercept, scale, program.frame):
        prefix = f"{label}_" if label else ""
        place = Place(prefix, unit, SLOPE, program.names)
        variable = place.variable(f"mu_{label}") if label else "mu"
        cutpoints = outcome.family.name == "ordinal"
        add_predictor(program, first, place, variable, where, has_cutpoints=cutpoints)
        found.append(variable)
    if outcome.family.name == "categorical":
        found = [f"torch.zeros_like({found[0]})", *found]
    return found[0] if len(found) == 1 else f"torch.stack([{', '.join(found)}], -1)"


def _outputs(
    outcome: Outcome, likelihood: str | Likelihood, intercept: Intercept, scale: float, frame: pd.DataFrame
) -> Iterator[tuple[str, Intercept, float]]:
    """Yield the label, the intercept and the scale of each output of the likelihood."""
    name = outcome.family.name
    if name == "categorical":
        yield from ((str(level), intercept, scale) for level in outcome.levels[1:])
    elif name == "multivariate_gaussian":
        for text, (loc, sd) in zip(outcome.texts, _moments(outcome, frame), strict=True):
            yield text, Intercept(loc, SLOPE * sd, intercept.rule), sd
    elif name == "gaussian_mixture":
        count = int(getattr(likelihood, "num_components", 2))
        yield from ((f"mu{k + 1}", intercept, scale) for k in range(count))
        spread = Intercept(scale, SLOPE * scale, "Student-t(3), the outcome's scale, 2.5 times it")
        yield from ((f"scale{k + 1}", spread, scale) for k in range(count))
        yield from ((f"logit{k + 1}", Intercept(0.0, SLOPE, "Student-t(3), 0, 2.5"), 1.0) for k in range(count))
    else:
        yield "", intercept, scale


def _moments(outcome: Outcome, frame: pd.DataFrame) -> Iterator[tuple[float, float]]:
    for text in outcome.texts:
        values = numbers_of(text, frame)
        yield float(np.median(values)), float(values.std(ddof=1)) or 1.0


def _add_parameters(
    program: ModelCode, outcome: Outcome, likelihood: str | Likelihood, extra: Mapping[str, Parsed]
) -> str:
    """Add the parameters of the likelihood, and return the likelihood as code."""
    family, by_name = outcome.family, isinstance(likelihood, str)
    _, scale = outcome.scales(program.frame, np.zeros(len(program.frame)))
    given = []
    for name, parameter in family.parameters.items():
        if name in extra:
            parsed = extra[name]
            centre = parameter.centre + (float(np.log(scale)) if parameter.in_units else 0.0)
            place = Place(f"{name}_", 1.0, SLOPE_OF_PARAMETER, program.names)
            words = "the logarithm of the outcome's scale" if parameter.in_units else f"{centre:g}"
            variable = place.variable(f"predictor_{name}")
            add_predictor(
                program, parsed, place, variable, Intercept(centre, 2.5, f"Student-t(3), {words}, 2.5"), has_rows=False
            )
            program.statements.append(f"{name} = {parameter.link}({variable})")
        elif by_name:
            text = parameter.prior.format(rate=numbers(1 / scale))
            program.statements.append(
                FormulaSite(name, name, text, parameter.rule, (0.0, scale) if parameter.in_units else None)
            )
        if by_name or name in extra:
            given.append(f"{parameter.keyword if by_name else parameter.attribute or parameter.keyword}={name}")
    if by_name and family.name == "multivariate_gaussian":
        scales = [sd for _, sd in _moments(outcome, program.frame)]
        rates = ", ".join(numbers(1 / sd) for sd in scales)
        code = f"dist.Exponential(torch.tensor([{rates}])).to_event(1)"
        rule, names = "Exponential, means the scales of the outcomes", {"outcome": list(outcome.texts)}
        unit = 0.0, tuple(scales)
        program.statements.append(FormulaSite("sigma", "sigma", code, rule, unit, (len(scales),), ("outcome",), names))
        given = ["scale=sigma"]
    if by_name and family.name in ("ordinal", "gaussian_mixture"):
        given = [f"num_categories={len(outcome.levels)}" if family.name == "ordinal" else "num_components=2"]
    if by_name:
        return f"likelihoods.{family.name}({', '.join(given)})"
    return f"replace(LIKELIHOOD, {', '.join(given)})" if given else "LIKELIHOOD"


def _beside(first: Parsed) -> str:
    weights = ", row_weights" if "weights" in first.additions else ""
    return weights + (", censored=censored" if {"event", "censored"} & first.additions.keys() else "")
