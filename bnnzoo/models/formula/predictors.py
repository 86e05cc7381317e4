"""Predictors: the terms of one formula, collected for the location of an outcome, a parameter or a covariate with gaps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.models.formula.formula_sites import FormulaSite, Names, Place, Term, numbers
from bnnzoo.models.formula.frames import numbers_of
from bnnzoo.models.formula.groups import grouped, nested
from bnnzoo.models.formula.linear import Intercept, linear
from bnnzoo.models.formula.network_terms import network
from bnnzoo.models.formula.parsing import Call, FormulaError, Parsed, plain_name
from bnnzoo.models.formula.smooths import gaussian_process, spline

__all__ = ["ModelCode", "Offset", "add_predictor", "offset_of"]


@dataclass(frozen=True)
class Offset:
    """Encoder of an offset, the sum of its columns."""

    argument: str
    texts: tuple[str, ...]

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the offset ``[N]``."""
        return {self.argument: pd.Series(offset_of(self.texts, frame), frame.index)}


@dataclass
class ModelCode:
    """The code of a model while it is written: its statements, and what they refer to.

    Attributes
    ----------
    frame : DataFrame
        The training data.
    draws_new : bool
        Whether new levels of groups are drawn.
    names : Names
    statements : list of FormulaSite and str
    terms : list of Term
    completed : dict of str to str
        Variables of covariates whose gaps are filled.
    """

    frame: pd.DataFrame
    draws_new: bool
    names: Names
    statements: list[FormulaSite | str] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    completed: dict[str, str] = field(default_factory=dict)

    def add(self, term: Term) -> list[str]:
        """Add the statements of a term and return its summands."""
        self.statements += term.statements
        self.terms.append(term)
        return list(term.summands)


def offset_of(texts: Sequence[str], frame: pd.DataFrame) -> NDArray[np.floating[Any]]:
    """Return the sum ``[N]`` of some columns."""
    return sum((numbers_of(text, frame) for text in texts), np.zeros(len(frame)))


def add_predictor(
    program: ModelCode,
    parsed: Parsed,
    place: Place,
    variable: str,
    intercept: Intercept,
    *,
    has_rows: bool = True,
    has_cutpoints: bool = False,
) -> None:
    """Add the statements that compute one predictor.

    Parameters
    ----------
    program : ModelCode
    parsed : Parsed
        Its formula.
    place : Place
    variable : str
        That the code assigns to.
    intercept : Intercept
    has_rows : bool
        Whether the predictor must have one entry for each row, even if all are equal.
    has_cutpoints : bool
        Whether cutpoints take the place of an intercept.
    """
    key = parsed.linear
    argument = place.argument("x", key)
    first = linear(key, program.frame, argument, place, intercept, has_cutpoints=has_cutpoints)
    summands = program.add(first)
    texts = tuple(text for call in parsed.calls if call.name == "offset" for text in _one_variable(call))
    if texts:
        name = place.argument("offset", "+".join(texts))
        program.add(Term((), (), Offset(name, texts), (name,)))
        summands.append(name)
    covariates = list(first.encoder.design.terms())  # type: ignore[attr-defined]  # of linear terms
    for call in parsed.calls:
        if call.name == "s":
            summands += program.add(spline(call, program.frame, place))
        elif call.name == "gp":
            summands += program.add(gaussian_process(call, program.frame, place))
        elif call.name == "nn":
            summands += program.add(network(call, program.frame, place, covariates))
        elif call.name == "mi":
            summands.append(_slope(program, call, place))
    for group in parsed.groups:
        for one in nested(group):
            summands += program.add(grouped(one, program.frame, place, draws_new=program.draws_new))
    if has_rows and not (first.names or parsed.calls or parsed.groups):
        program.names.taken.add("rows")
        summands.append("rows")
    program.statements.append(f"{variable} = {' + '.join(summands) or '0.0'}")


def _slope(program: ModelCode, call: Call, place: Place) -> str:
    """Add the coefficient of a covariate with gaps and return what it adds to the predictor."""
    (variable,) = _one_variable(call)
    values = numbers_of(variable, program.frame, missing=True)
    scale = place.scale / float(np.nanstd(values, ddof=1))
    prior, rule = f"dist.Normal(0.0, {numbers(place.slope * scale)})", "Normal, as for other coefficients"
    site = place.site("b", f"mi({plain_name(variable)})", prior, rule, unit=(0.0, scale))
    program.statements.append(site)
    return f"{site.variable} * {program.completed[variable]}"


def _one_variable(call: Call) -> tuple[str]:
    if len(call.variables) != 1 or call.settings:
        raise FormulaError(f"{call.text} takes one variable and no settings.")
    return (call.variables[0],)
