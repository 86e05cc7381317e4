"""Datasets of some rows after another, put together without a second copy."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import xarray as xr

from bnnzoo.predictive.blocks import widened
from bnnzoo.predictive.labels import ROWS

__all__ = ["Gathered"]


class Gathered:
    """Variables of all rows, allocated when the first rows come and filled from then on.

    Parts that are kept until the end would lie scattered over the memory that each of them needed, and hold on to it.

    Parameters
    ----------
    num_rows : int

    Examples
    --------
    >>> whole = Gathered(3)
    >>> for rows in (slice(0, 2), slice(2, 3)):
    ...     whole.add(xr.Dataset({"a": ("obs_id", np.arange(rows.start, rows.stop))}), rows)
    >>> whole.dataset()["a"].values
    array([0, 1, 2])
    """

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._rest = xr.Dataset()
        self._whole: dict[Hashable, tuple[tuple[Hashable, ...], Any, dict[Any, Any]]] = {}
        self._coords: set[Hashable] = set()

    def add(self, part: xr.Dataset, rows: slice) -> None:
        """Put a part in its place."""
        by_row = {name: each for name, each in part.variables.items() if ROWS in each.dims}
        if rows.start == 0:
            self._rest, self._coords = part.drop_vars(list(by_row)), set(part.coords) & set(by_row)
            self._whole = {}
            for name, each in by_row.items():
                shape = [self._num_rows if dim == ROWS else size for dim, size in each.sizes.items()]
                kind = object if each.dtype.kind in "SU" else each.dtype  # texts may be longer in later parts
                self._whole[name] = each.dims, np.empty(shape, dtype=kind), dict(each.attrs)
        for name, each in by_row.items():
            dims, whole, attrs = self._whole[name]
            self._whole[name] = dims, widened(whole, each.to_numpy()), attrs
            self._whole[name][1][tuple(rows if dim == ROWS else slice(None) for dim in each.dims)] = each.to_numpy()

    def dataset(self) -> xr.Dataset:
        """Return the whole."""
        return self._rest.assign(self._whole).set_coords(list(self._coords))
