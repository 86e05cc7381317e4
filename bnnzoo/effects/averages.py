"""Averages of effects over rows: all of them, or those with equal values of some columns."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.effects.grids import refuse_unknown_column

__all__ = ["By", "cells_of", "mean_of_cells"]

type By = bool | str | list[str]
type Array = NDArray[np.floating[Any]]


def cells_of(rows: pd.DataFrame, by: By) -> tuple[pd.DataFrame, NDArray[np.integer[Any]]]:
    """Return the cells over which rows are averaged, and the cell ``[N]`` of each row.

    Parameters
    ----------
    rows : DataFrame
    by : bool, str or list of str
        True for one cell of all rows; names of columns for a cell for each combination of their values.
    """
    if by is True:
        return pd.DataFrame(index=[0]), np.zeros(len(rows), dtype=int)
    names = [by] if isinstance(by, str) else list(by or ())
    for name in names:
        refuse_unknown_column(name, rows)
    grouped = rows.groupby(names, sort=True, observed=True, dropna=False)
    places = grouped.ngroup().to_numpy()
    first = rows[names].iloc[[int(np.flatnonzero(places == cell)[0]) for cell in range(grouped.ngroups)]]
    return first.reset_index(drop=True), places


def mean_of_cells(values: Array, cells: NDArray[np.integer[Any]], weights: Array | None = None) -> Array:
    """Return the mean ``[..., G]`` over the rows of each cell of values ``[..., N]``.

    Examples
    --------
    >>> mean_of_cells(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1])).tolist()
    [2.0, 5.0]
    """
    weights = np.ones(len(cells)) if weights is None else weights
    matrix = np.zeros((len(cells), int(cells.max()) + 1))
    matrix[np.arange(len(cells)), cells] = weights
    found: Array = values @ (matrix / matrix.sum(0))
    return found
