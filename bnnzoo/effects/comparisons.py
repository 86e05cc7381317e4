"""Comparisons of expected outcomes at two values of a variable, and slopes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Whole
from bnnzoo.effects.averages import By, cells_of, mean_of_cells
from bnnzoo.effects.effect_estimates import Effects, joined
from bnnzoo.effects.expectations import Encode, Expected, Subject
from bnnzoo.effects.grids import contrasts_of, inputs_of, is_numeric, refuse_unknown_column, rows_of
from bnnzoo.effects.predictions import effects_of_groups
from bnnzoo.models.formula.model import Formula

__all__ = ["avg_comparisons", "avg_slopes", "comparisons", "slopes"]

type Array = NDArray[np.floating[Any]]
type Comparison = Literal["difference", "ratio", "lnratio", "lnor", "lift"]
type Slope = Literal["dydx", "eyex", "eydx", "dyex"]

COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "difference": lambda high, low: high - low,
    "ratio": lambda high, low: high / low,
    "lnratio": lambda high, low: np.log(high / low),
    "lnor": lambda high, low: np.log(high / (1 - high)) - np.log(low / (1 - low)),
    "lift": lambda high, low: (high - low) / low,
}
SLOPES = ("dydx", "eyex", "eydx", "dyex")

STENCIL = {-2: 1 / 12, -1: -8 / 12, 1: 8 / 12, 2: -1 / 12}
"""Weights of a fourth-order central difference."""


def comparisons(
    posterior: Posterior,
    variables: str | list[str] | Mapping[str, Any] | None = None,
    newdata: Any = None,
    comparison: Comparison = "difference",
    by: By = False,
    *,
    wts: str | None = None,
    num_draws: int | None = None,
    seed: Whole | None = None,
    encode: Encode | None = None,
) -> Effects:
    """Return comparisons of the expected outcome at two values of each variable, other variables being left as they were.

    Parameters
    ----------
    posterior : Posterior
        Of a formula, or of a model whose first argument was a frame.
    variables : str, list or mapping, optional
        Names, or a mapping to what is compared. For numbers a gap around the observed value, two values, or one of ``"iqr"``,
        ``"sd"``, ``"2sd"``, ``"minmax"``. For categories two levels, or ``"reference"``, ``"sequential"``, ``"pairwise"``,
        ``"all"``,
        ``"minmax"``, and ``"rev..."`` of these. Default: all inputs; a gap of one, and every level against the first.
    newdata : DataFrame or "mean", optional
        Rows at which to compare. Default: the training data.
    comparison : str
        ``"difference"``, ``"ratio"``, ``"lnratio"``, ``"lnor"`` (of odds), ``"lift"``. Averages are of differences; the others
        are of averages.
    by : bool, str or list of str
        Average over all rows, or over those with equal values of some columns.
    wts, num_draws, seed, encode
        As for `predictions`.

    Returns
    -------
    Effects

    Raises
    ------
    ValueError
        If a column, level or comparison is not known.

    References
    ----------
    Arel-Bundock, Greifer and Heiss (2024), How to interpret statistical models using marginaleffects for R and Python, Journal of
    Statistical Software 111.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0], "sex": ["f", "m", "f", "m"]})
    >>> posterior = bz.fit(bz.formula("y ~ dose + sex", frame), bz.Laplace(), frame, progress=False)
    >>> bz.effects.avg_comparisons(posterior, num_draws=50).rows["contrast"].tolist()
    ['+1', 'm - f']
    """
    if comparison not in COMPARISONS:
        raise ValueError(f"comparison={comparison!r}: write one of {', '.join(COMPARISONS)}.")
    subject = Subject.of(posterior, num_draws, seed, newdata, encode)
    rows = rows_of(newdata, subject.frame)
    parts = [
        part
        for name, wanted in _wanted(variables, subject).items()
        for part in _compared(subject, name, wanted, rows, comparison, by, wts)
    ]
    return replace(joined(parts), variables=_names(by))


def avg_comparisons(posterior: Posterior, *args: Any, by: By = True, **settings: Any) -> Effects:
    """Return `comparisons`, averaged over all rows unless ``by`` says over which.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> len(bz.effects.avg_comparisons(posterior, {"dose": [0, 2]}, num_draws=50))
    1
    """
    return comparisons(posterior, *args, **{**settings, "by": by})


def slopes(
    posterior: Posterior,
    variables: str | list[str] | None = None,
    newdata: Any = None,
    slope: Slope = "dydx",
    by: By = False,
    *,
    wts: str | None = None,
    num_draws: int | None = None,
    seed: Whole | None = None,
    encode: Encode | None = None,
) -> Effects:
    """Return derivatives of the expected outcome by each numeric variable, and differences between levels of others.

    Derivatives are fourth-order central differences, whose step suits the precision of the fit: their error is about 1e-10 of
    an effect in double precision, 1e-5 in single.

    Parameters
    ----------
    posterior : Posterior
        Of a formula, or of a model whose first argument was a frame.
    variables : str or list, optional
        Names. Default: all inputs.
    newdata : DataFrame or "mean", optional
        Rows at which to differentiate. Default: the training data.
    slope : str
        ``"dydx"``, or an elasticity: ``"eyex"`` relative to both, ``"eydx"`` relative to the outcome, ``"dyex"`` to the variable.
    by, wts, num_draws, seed, encode
        As for `comparisons`.

    Returns
    -------
    Effects

    Raises
    ------
    ValueError
        If a column or a kind of slope is not known.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> bz.effects.slopes(posterior, "dose", num_draws=50).rows["contrast"].unique().tolist()
    ['dY/dX']
    """
    if slope not in SLOPES:
        raise ValueError(f"slope={slope!r}: write one of {', '.join(SLOPES)}.")
    subject = Subject.of(posterior, num_draws, seed, newdata, encode)
    rows = rows_of(newdata, subject.frame)
    parts: list[Effects] = []
    for name, wanted in _wanted(variables, subject).items():
        if is_numeric(subject.frame[name]):
            parts.append(_derivative(subject, name, rows, slope, by, wts))
        else:
            parts += _compared(subject, name, wanted, rows, "difference", by, wts)
    return replace(joined(parts), kind="slopes", variables=_names(by))


def avg_slopes(posterior: Posterior, *args: Any, by: By = True, **settings: Any) -> Effects:
    """Return `slopes`, averaged over all rows unless ``by`` says over which.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> len(bz.effects.avg_slopes(posterior, num_draws=50))
    1
    """
    return slopes(posterior, *args, **{**settings, "by": by})


def _compared(
    subject: Subject, name: str, wanted: Any, rows: pd.DataFrame, comparison: str, by: By, wts: str | None
) -> Iterator[Effects]:
    function = COMPARISONS[comparison]
    for contrast in contrasts_of(name, wanted, rows, subject.frame):
        high, low = subject.expected(contrast.high), subject.expected(contrast.low)
        label = contrast.label
        if comparison != "difference":
            label = label.replace(" - ", " / ") if comparison == "ratio" else f"{comparison}({label})"
        about = {"term": name, "contrast": label}
        if by is False or comparison == "difference":
            yield effects_of_groups("comparisons", _combined(high, low, function), rows, by, wts, about)
            continue
        table, cells = cells_of(rows, by)
        weights = None if wts is None else rows[wts].to_numpy(dtype=float)
        high, low = (
            replace(
                each,
                mean=np.moveaxis(mean_of_cells(np.moveaxis(each.mean, 2, -1), cells, weights), -1, 2),
                variance=None,
            )
            for each in (high, low)
        )
        yield effects_of_groups("comparisons", _combined(high, low, function), table, False, None, about)


def _combined(high: Expected, low: Expected, function: Callable[[Array, Array], Array]) -> Expected:
    is_difference = function is COMPARISONS["difference"] and high.variance is not None and low.variance is not None
    spread = high.variance + low.variance if is_difference else None  # type: ignore[operator]
    return Expected(function(high.mean, low.mean), spread, high.groups)


def _derivative(subject: Subject, name: str, rows: pd.DataFrame, slope: str, by: By, wts: str | None) -> Effects:
    values = rows[name].astype(float)
    column = subject.frame[name].astype(float)
    spread = float(column.std(ddof=1)) or 1.0
    step = torch.finfo(subject.posterior.density.dtype).eps ** 0.2 * spread
    shifted = pd.concat([rows.assign(**{name: values + place * step}) for place in (*STENCIL, 0)], ignore_index=True)
    expected = subject.expected(shifted)
    parts = expected.mean.reshape(*expected.mean.shape[:2], len(STENCIL) + 1, len(rows), -1)
    found = sum(weight * parts[:, :, place] for place, weight in enumerate(STENCIL.values())) / step
    if slope in ("eyex", "eydx"):
        found = found / parts[:, :, -1]
    if slope in ("eyex", "dyex"):
        found = found * values.to_numpy()[:, None]
    about = {"term": name, "contrast": {"dydx": "dY/dX", "eyex": "eY/eX", "eydx": "eY/dX", "dyex": "dY/eX"}[slope]}
    return effects_of_groups("slopes", Expected(np.asarray(found), None, expected.groups), rows, by, wts, about)


def _wanted(variables: Any, subject: Subject) -> dict[str, Any]:
    if isinstance(variables, Mapping):
        found = dict(variables)
    elif variables is None:
        model = subject.posterior.density.model
        apart = (*model.outcome.needed, *model.outcome.additions.values()) if isinstance(model, Formula) else ()
        found = dict.fromkeys(inputs_of(subject.frame, apart))
    else:
        found = dict.fromkeys([variables] if isinstance(variables, str) else variables)
    for name in found:
        refuse_unknown_column(name, subject.frame)
    if not found:
        raise ValueError("There are no variables to compare.")
    return found


def _names(by: By) -> tuple[str, ...]:
    return (by,) if isinstance(by, str) else tuple(by) if isinstance(by, list) else ()
