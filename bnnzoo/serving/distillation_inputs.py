"""Inputs at which draws and student are compared: at the data, between them and beyond them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

__all__ = ["DistillationInputs", "finite_rows", "points_of"]

type Array = NDArray[np.floating]

NEIGHBOURS = 5
"""Of a row, towards one of which it is moved."""

FEW_VALUES = 2
"""Columns of at most so many values are codes: no values between them are made up."""

MOST_ROWS = 5000
"""Rows from which distances are measured."""

FAR = 0.95
"""Quantile of the distances of held-out inputs from the data; a point farther away lies beyond the data."""


@dataclass(frozen=True)
class DistillationInputs:
    """Inputs ``[M, ...]`` to learn from and, held out, those that lie inside the data and beyond them.

    Attributes
    ----------
    training, inside, beyond : ndarray [M, ...]
        The first half of ``training`` lies inside the data.
    low, high : ndarray [...]
        Corners of the box from which all come.
    """

    training: Array
    inside: Array
    beyond: Array
    low: Array
    high: Array


def finite_rows(inputs: Any) -> NDArray[Any]:
    """Return inputs ``[N, ...]``, a tensor or what numpy takes, as an array.

    Raises
    ------
    TypeError, ValueError
        If they are not numbers, or not finite, naming the row.
    """
    values = np.atleast_1d(inputs.detach().cpu() if isinstance(inputs, Tensor) else inputs)
    if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        raise TypeError(f"inputs hold {values.dtype}: pass an array of numbers [N, ...], as to bnnzoo.predict.")
    is_finite = np.isfinite(values)
    if not is_finite.all():
        row = int(np.argmin(is_finite.reshape(len(values), -1).all(1)))
        raise ValueError(f"inputs are not finite in row {row}: leave such rows out, or impute them as for the fit.")
    return values


def points_of(inputs: Array, number: int, reach: float, seed: int) -> DistillationInputs:
    """Return ``number`` inputs to learn from, and up to a quarter as many of each kind that are held out.

    A fifth of the rows is held out, with all points made of it. Half of the points to learn from are the other rows and
    points on the way from one to a neighbour; a quarter lie between any two rows, a quarter anywhere in a box that is wider
    than the data.

    Parameters
    ----------
    inputs : ndarray [N, ...]
    number : int
    reach : float
        How far the box extends beyond the data at each end, as a fraction of the range of each column.
    seed : int
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(inputs.reshape(len(inputs), -1))
    is_code = np.array([len(np.unique(column)) <= FEW_VALUES for column in rows.T])
    margin = reach * np.ptp(rows, 0) * ~is_code
    low, high = rows.min(0) - margin, rows.max(0) + margin
    held_out, known = np.split(rows, [max(1, len(rows) // 5)])
    near, scale = known[:MOST_ROWS], np.where(np.ptp(rows, 0) > 0, rows.std(0), 1.0)
    tree = KDTree(near / scale)

    def any_of(of: Array, count: int) -> Array:
        return of[rng.integers(len(of), size=count)]

    def between(one: Array, other: Array) -> Array:
        return one + ~is_code * rng.uniform(size=(len(one), 1)) * (other - one)

    def around(of: Array, count: int) -> Array:
        """Return the rows, as many as are wanted, and further points on the way to neighbours."""
        chosen = any_of(of, max(0, count - len(of)))
        _, places = tree.query(
            chosen / scale, range(2, 2 + min(NEIGHBOURS, len(near) - 1))
        )  # the first is the row itself
        return np.concatenate([of[:count], between(chosen, near[rng.permuted(places, axis=1)[:, 0]])])

    def in_box(count: int) -> Array:
        return np.where(is_code, any_of(known, count), rng.uniform(low, high, (count, len(low))))

    quarter = number // 4
    anywhere = [between(any_of(known, quarter), any_of(known, quarter)), in_box(number - 3 * quarter)]
    inside, wide = around(held_out, quarter), in_box(number)
    is_far = tree.query(wide / scale)[0] > np.quantile(tree.query(inside / scale)[0], FAR)
    parts = (np.concatenate([around(known, 2 * quarter), *anywhere]), inside, wide[is_far][:quarter], low, high)
    return DistillationInputs(*(part.reshape(*part.shape[: part.ndim - 1], *inputs.shape[1:]) for part in parts))
