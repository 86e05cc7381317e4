"""Curves of single rows, and accumulated local effects, for models whose inputs are correlated."""

from typing import Any

import numpy as np
import pandas as pd

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Whole
from bnnzoo.effects.effect_estimates import Effects
from bnnzoo.effects.expectations import Encode, Subject
from bnnzoo.effects.grids import is_numeric, refuse_unknown_column, rows_of
from bnnzoo.effects.predictions import predictions

__all__ = ["accumulated", "individual"]


def individual(
    posterior: Posterior, variable: str, newdata: Any = None, *, num_points: int = 20, **settings: Any
) -> Effects:
    """Return individual conditional expectations: the expected outcome of each row along one variable.

    Parameters
    ----------
    posterior : Posterior
    variable : str
        A numeric column.
    newdata : DataFrame, optional
        Rows. Default: the training data.
    num_points : int
        Values of the variable, evenly spaced over the training data.
    **settings
        Of `predictions`.

    Returns
    -------
    Effects
        With columns ``rowid`` and the variable.

    References
    ----------
    Goldstein, Kapelner, Bleich and Pitkin (2015), Peeking inside the black box: visualizing statistical learning with plots of
    individual conditional expectation, Journal of Computational and Graphical Statistics 24.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> len(bz.effects.individual(posterior, "dose", num_points=5, num_draws=20))
    20
    """
    subject = Subject.of(posterior, None, None, newdata)
    _refuse_no_number(variable, subject.frame)
    column = subject.frame[variable]
    grid = np.linspace(column.min(), column.max(), num_points)
    return predictions(posterior, {variable: grid}, newdata, **settings)


def accumulated(
    posterior: Posterior,
    variable: str,
    newdata: Any = None,
    *,
    num_bins: int = 20,
    num_draws: int | None = None,
    seed: Whole | None = None,
    encode: Encode | None = None,
) -> Effects:
    """Return accumulated local effects of a numeric variable, centred at zero.

    Within bins of the variable, differences between the bin's ends are averaged over the rows of the bin, and then added up.
    Unlike averages over all rows, they use no combination of inputs far from those that occurred.

    Parameters
    ----------
    posterior : Posterior
    variable : str
        A numeric column.
    newdata : DataFrame, optional
        Rows. Default: the training data.
    num_bins : int
        With equal numbers of rows.
    num_draws, seed, encode
        As for `predictions`.

    Returns
    -------
    Effects
        One at each end of a bin, with the variable as a column.

    Raises
    ------
    ValueError
        If the column is not known, not numeric, or constant.

    References
    ----------
    Apley and Zhu (2020), Visualizing the effects of predictor variables in black box supervised learning models, Journal of the
    Royal Statistical Society B 82.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> bz.effects.accumulated(posterior, "dose", num_bins=3, num_draws=20).rows["dose"].tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    subject = Subject.of(posterior, num_draws, seed, newdata, encode)
    rows = rows_of(newdata, subject.frame)
    _refuse_no_number(variable, rows)
    values = rows[variable].to_numpy(dtype=float)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, num_bins + 1)))
    if len(edges) < 2:
        raise ValueError(f"{variable!r} has one value only.")
    bins = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    low, high = (subject.expected(rows.assign(**{variable: edges[bins + end]})) for end in (0, 1))
    steps = high.mean - low.mean  # [C, S, N, K]
    counts = np.bincount(bins, minlength=len(edges) - 1)
    share = np.zeros((len(rows), len(edges) - 1))
    share[np.arange(len(rows)), bins] = 1 / counts[bins]
    means = np.einsum("csnk,nb->csbk", steps, share)
    curve = np.concatenate([np.zeros_like(means[:, :, :1]), means.cumsum(2)], 2)
    middle = (curve[:, :, 1:] + curve[:, :, :-1]) / 2
    curve = curve - np.einsum("csbk,b->csk", middle, counts / counts.sum())[:, :, None]
    groups = high.groups or ("",)
    tables = [pd.DataFrame({"term": variable, variable: edges}) for _ in groups]
    if high.groups:
        tables = [table.assign(group=group) for table, group in zip(tables, groups, strict=True)]
    draws = np.concatenate([curve[..., place] for place in range(len(groups))], -1)
    return Effects("accumulated", draws, pd.concat(tables, ignore_index=True), None, (variable,))


def _refuse_no_number(variable: str, frame: pd.DataFrame) -> None:
    refuse_unknown_column(variable, frame)
    if not is_numeric(frame[variable]):
        raise ValueError(f"{variable!r} holds no numbers: write predictions(posterior, variables={variable!r}).")
