"""Expected outcomes: of rows, at values of variables, and averaged."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Whole
from bnnzoo.effects.averages import By, cells_of, mean_of_cells
from bnnzoo.effects.effect_estimates import Effects
from bnnzoo.effects.expectations import Encode, Expected, Subject
from bnnzoo.effects.grids import is_numeric, refuse_unknown_column, rows_of

__all__ = ["avg_predictions", "effects_of_groups", "predictions"]

type Array = NDArray[np.floating[Any]]

NUM_POINTS = 5
"""Values of a numeric variable that is only named: its quartiles and ends."""


def predictions(
    posterior: Posterior,
    variables: str | list[str] | Mapping[str, Any] | None = None,
    newdata: Any = None,
    by: By = False,
    *,
    wts: str | None = None,
    num_draws: int | None = None,
    seed: Whole | None = None,
    encode: Encode | None = None,
) -> Effects:
    r"""Return expected outcomes :math:`E[y \mid x, \theta]`, or probabilities of classes, for each draw of a posterior.

    Parameters
    ----------
    posterior : Posterior
        Of a formula, or of a model whose first argument was a frame.
    variables : str, list or mapping, optional
        Variables to be set, in every row, to each of some values, other variables being left as they were: a mapping to
        values, or names, whose values are the levels or five quantiles.
    newdata : DataFrame or "mean", optional
        Rows to predict; "mean" is one row at the means and modes. Default: the training data. See also `datagrid`.
    by : bool, str or list of str
        Average over all rows, or over those with equal values of some columns.
    wts : str, optional
        Column with the weights of rows in averages.
    num_draws : int, optional
        Draws a chain. Default: as for `bnnzoo.predict`.
    seed : int, optional
        Of the draws; that of the fit unless given.
    encode : callable, optional
        From a frame to the arguments of the model, for posteriors of encoded inputs. Default: the frame itself.

    Returns
    -------
    Effects

    Raises
    ------
    ValueError
        If a column is not known, or the posterior has no frame and none is given.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> bz.effects.predictions(posterior, newdata={"dose": [0.0, 5.0]}, num_draws=50).draws.shape
    (1, 50, 2)
    """
    subject = Subject.of(posterior, num_draws, seed, newdata, encode)
    rows = rows_of(newdata, subject.frame)
    values = _values(variables, subject.frame)
    if values:
        parts = []
        for chosen in itertools.product(*values.values()):
            parts.append(rows.assign(**dict(zip(values, chosen, strict=True)), rowid=np.arange(len(rows))))
        rows = pd.concat(parts, ignore_index=True)
    expected = subject.expected(rows.drop(columns="rowid", errors="ignore"))
    names = tuple(values) or (tuple([by] if isinstance(by, str) else by) if isinstance(by, str | list) else ())
    return effects_of_groups("predictions", expected, rows, by, wts, {}, names)


def avg_predictions(posterior: Posterior, *args: Any, by: By = True, **settings: Any) -> Effects:
    """Return `predictions`, averaged over all rows unless ``by`` says over which.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> len(bz.effects.avg_predictions(posterior, num_draws=50))
    1
    """
    return predictions(posterior, *args, **{**settings, "by": by})


def effects_of_groups(
    kind: Any,
    expected: Expected,
    rows: pd.DataFrame,
    by: By,
    wts: str | None,
    about: Mapping[str, Any],
    variables: tuple[str, ...] = (),
) -> Effects:
    """Return values ``[C, S, N, K]`` as effects, averaged over cells of rows, with a row for each cell and group."""
    values, spread = expected.mean, expected.variance
    table = rows
    if by is not False:
        table, cells = cells_of(rows, by)
        if wts is not None:
            refuse_unknown_column(wts, rows)
        weights = np.ones(len(rows)) if wts is None else rows[wts].to_numpy(dtype=float)
        values = np.moveaxis(mean_of_cells(np.moveaxis(values, 2, -1), cells, weights), -1, 2)
        if spread is not None:  # of the mean of independent outcomes
            sums = np.bincount(cells, weights)
            shares = np.bincount(cells, weights**2) / sums**2
            spread = np.moveaxis(mean_of_cells(np.moveaxis(spread, 2, -1), cells, weights**2), -1, 2) * shares[:, None]
    groups = expected.groups or ("",)
    parts = []
    for place, group in enumerate(groups):
        named = table.assign(group=group) if expected.groups else table.copy()
        for name, value in reversed(list(about.items())):
            named.insert(0, name, value)
        aleatoric = None if spread is None else spread[..., place].mean((0, 1))
        parts.append((values[..., place], named, aleatoric))
    draws = np.concatenate([part[0] for part in parts], -1)
    aleatorics = None if spread is None else np.concatenate([part[2] for part in parts if part[2] is not None])
    return Effects(kind, draws, pd.concat([part[1] for part in parts], ignore_index=True), aleatorics, variables)


def _values(variables: Any, frame: pd.DataFrame) -> dict[str, list[Any]]:
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        variables = dict.fromkeys([variables] if isinstance(variables, str) else variables)
    found = {}
    for name, wanted in variables.items():
        refuse_unknown_column(name, frame)
        if wanted is None:
            column = frame[name]
            wanted = (
                np.quantile(column.dropna(), np.linspace(0, 1, NUM_POINTS))
                if is_numeric(column) and column.nunique() > NUM_POINTS
                else sorted(column.dropna().unique())
            )
        found[name] = [wanted] if isinstance(wanted, str | int | float) else list(wanted)
    return found
