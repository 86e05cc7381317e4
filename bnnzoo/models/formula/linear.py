"""Population-level terms: an intercept, and coefficients of the columns that formulaic makes."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.program.sites import ModelWarning
from bnnzoo.models.formula.formula_sites import FormulaSite, Place, Term, numbers
from bnnzoo.models.formula.frames import Design
from bnnzoo.models.formula.parsing import plain_name

__all__ = ["Columns", "Intercept", "linear", "spread_of"]

type Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Intercept:
    """Prior of an intercept at the means of the columns: its location, scale and the rule behind them."""

    loc: float
    scale: float
    rule: str


@dataclass(frozen=True)
class Columns:
    """Encoder of a design matrix whose columns are centred at their means in the training data.

    Attributes
    ----------
    argument : str
        Of the model.
    design : Design
    kept : tuple of int
        Columns that are no intercept.
    means : tuple of float
        Of all columns.
    """

    argument: str
    design: Design
    kept: tuple[int, ...]
    means: tuple[float, ...]

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the centred matrix ``[N, P]``, without the intercept's column."""
        if not self.kept:
            return {}
        matrix = (self.design.matrix(frame) - np.array(self.means))[:, list(self.kept)]
        return {self.argument: pd.DataFrame(matrix, frame.index, [self.design.names[place] for place in self.kept])}


def linear(
    text: str, frame: pd.DataFrame, argument: str, place: Place, intercept: Intercept, *, has_cutpoints: bool = False
) -> Term:
    """Return the population-level part of a predictor.

    Parameters
    ----------
    text : str
        What formulaic reads.
    frame : DataFrame
        The training data.
    argument : str
        Name of the argument that takes the matrix.
    place : Place
    intercept : Intercept
    has_cutpoints : bool
        Whether cutpoints take the place of an intercept; columns are centred all the same.
    """
    design = Design.of(text, frame)
    matrix = design.matrix(frame)
    terms = design.terms()
    has_intercept = "1" in terms and not has_cutpoints
    kept = tuple(each for each in range(matrix.shape[1]) if "1" not in terms or each != terms["1"].start)
    means = matrix.mean(0) if "1" in terms else np.zeros(matrix.shape[1])
    spreads, columns = spread_of(matrix), np.arange(matrix.shape[1])
    _warn_of_constants(matrix, design.names, kept, has_intercept=has_intercept)
    found = {term: list(columns[where]) for term, where in terms.items() if term != "1"}
    if empty := [term for term, own in found.items() if not own]:
        raise DataError(
            f"Data refused: {empty[0]!r} has one level in these rows, which tells nothing: leave it out of the formula."
        )
    sites = {
        term: _coefficients(term, [design.names[c] for c in own], spreads[own], place) for term, own in found.items()
    }
    statements: list[FormulaSite | str] = list(sites.values())
    summands = []
    if has_intercept:
        name = f"{place.prefix}Intercept"
        centred = f"{name}_c" if kept else name
        prior = f"dist.StudentT(3.0, {numbers(intercept.loc)}, {numbers(intercept.scale)})"
        unit = (intercept.loc, intercept.scale / 2.5)
        site = FormulaSite(centred, place.variable(centred), prior, intercept.rule, unit, hidden=bool(kept))
        statements.append(site)
        summands.append(site.variable)
        if kept:
            parts = [site.variable]
            for term, own in found.items():
                of_term = sites[term]
                at = numbers(means[own] if of_term.shape else means[own][0], 17)
                parts.append(f"({at} * {of_term.variable}).sum(-1)" if of_term.shape else f"{at} * {of_term.variable}")
            statements.append(f"pyro.deterministic({name!r}, {' - '.join(parts)})")
    for term, own in found.items():
        first = kept.index(own[0])
        wanted = f"[:, {first}:{first + len(own)}] @ " if len(own) > 1 else f"[:, {first}] * "
        summands.append(f"{argument}{wanted}{sites[term].variable}")
    encoder = Columns(argument, design, kept, tuple(float(mean) for mean in means))
    return Term(tuple(statements), tuple(summands), encoder, (argument,) if kept else ())


def _coefficients(term: str, columns: list[str], spreads: Array, place: Place) -> FormulaSite:
    label, scales = plain_name(term), place.scale / spreads
    rule = f"Normal, {place.slope:g} x scale of the outcome / standard deviation of the column"
    if len(columns) == 1:
        prior = f"dist.Normal(0.0, {numbers(place.slope * scales[0])})"
        return place.site("b", label, prior, rule, unit=(0.0, float(scales[0])))
    dim = f"{place.prefix}{label}_level"
    return place.site(
        "b",
        label,
        f"dist.Normal(0.0, {numbers(place.slope * scales)}).to_event(1)",
        rule,
        unit=(0.0, tuple(float(scale) for scale in scales)),
        shape=(len(columns),),
        dims=(dim,),
        coords={dim: [_level(column, term) for column in columns]},
    )


def _warn_of_constants(matrix: Array, names: list[str], kept: tuple[int, ...], *, has_intercept: bool) -> None:
    constant = [
        names[place] for place in kept if np.ptp(matrix[:, place]) == 0 and (has_intercept or matrix[0, place] == 0)
    ]
    if constant:
        warnings.warn(
            f"Column {constant[0]!r} of the formula is the same in every row, so that its coefficient is not identified, and its "
            f"posterior is its prior: leave it out, or remove the category that does not occur.",
            ModelWarning,
            stacklevel=5,
        )


def _level(column: str, term: str) -> str:
    """Return the level that a column such as ``sex[T.male]`` stands for."""
    inside = column.removeprefix(term)
    if inside.startswith("[") and inside.endswith("]") and inside.count("[") == 1:
        return inside[1:-1].removeprefix("T.").removeprefix("S.")
    return column


def spread_of(matrix: Array) -> Array:
    """Return the standard deviation of each column, one where it is constant."""
    found = matrix.std(0, ddof=1) if len(matrix) > 1 else np.zeros(matrix.shape[1])
    return np.where(found > 1e-10 * np.abs(matrix).max(0, initial=1e-300), found, 1.0)
