"""Values that belong to the rows of other values: matched by label, or refused."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees.argument_kinds import refuse_other_kind

__all__ = ["Observed", "aligned", "as_array"]

type Observed = xr.DataArray | NDArray[Any] | pd.Series | pd.DataFrame | Sequence[Any]

NOT_OF_ROWS = ("chain", "draw", "class_id")


def aligned(
    values: Observed,
    rows: xr.DataArray,
    name: str = "y",
    of: str = "the predictions",
    *,
    apart_from: Sequence[Hashable] = NOT_OF_ROWS,
) -> xr.DataArray:
    """Return values ``[obs_id, ...]`` in the order of the rows of another array, with its labels.

    Labels decide where both have them, as coordinates or as the index of a pandas object. Values that have none, such as
    a numpy array, are matched by position and must be as many as the rows.

    Parameters
    ----------
    values : DataArray, ndarray, Series, DataFrame or sequence
        Such as observations or labels. Those of other rows are left out if they are labelled.
    rows : DataArray [..., obs_id, ...]
        Such as predictions for these rows.
    name, of : str
        What the two are called in an error message.
    apart_from : sequence of str
        Dims of ``rows`` that the values do not have.

    Returns
    -------
    DataArray [obs_id, ...]

    Raises
    ------
    ValueError
        If dims or sizes differ, or a row has no value with its label.

    Examples
    --------
    >>> rows = xr.DataArray([0.1, 0.2], dims="obs_id", coords={"obs_id": ["a", "b"]})
    >>> aligned(xr.DataArray([2.0, 3.0, 1.0], dims="obs_id", coords={"obs_id": ["b", "c", "a"]}), rows).values
    array([1., 2.])
    >>> aligned(np.array([5.0, 6.0]), rows)["obs_id"].values
    array(['a', 'b'], dtype='<U1')
    """
    refuse_other_kind(
        rows, xr.DataArray, of[:1].upper() + of[1:], "a DataArray with one value for each row, as measures return it"
    )
    dims = [dim for dim in rows.dims if dim not in apart_from]
    array = as_array(values)
    # xarray's default names of dims mean nothing
    if array.ndim == len(dims) and all(array.dims[i] == f"dim_{i}" for i in range(array.ndim)):
        array = array.rename(dict(zip(array.dims, dims, strict=True)))
    if {*array.dims} != {*dims}:
        raise ValueError(
            f"Values of {name} with {_sizes(array.sizes)} cannot belong to {of}, whose rows have "
            f"{_sizes({dim: rows.sizes[dim] for dim in dims})}: pass them with exactly these dims."
        )
    array = array.transpose(*dims)
    for dim in dims:
        array = _in_order(array, rows, dim, name, of)
    return array


def as_array(values: Observed) -> xr.DataArray:
    """Return values with labels if they have any: the index of a pandas object is that of its rows."""
    if isinstance(values, xr.DataArray):
        return values
    array = xr.DataArray(np.asarray(values))
    return array.assign_coords(dim_0=values.index) if isinstance(values, pd.Series | pd.DataFrame) else array


def _in_order(array: xr.DataArray, rows: xr.DataArray, dim: Hashable, name: str, of: str) -> xr.DataArray:
    ours, theirs = array.indexes.get(dim), rows.indexes.get(dim)
    if ours is not None and theirs is not None and not ours.equals(theirs):
        # where each of their labels stands among ours
        if not ours.is_unique:
            raise ValueError(
                f"Several values of {name} have the label {dim}={ours[ours.duplicated()][0]}: pass one for each row of "
                f"{of}, or pass them without labels, in the order of the rows."
            )
        places = np.asarray(ours.get_indexer(theirs))
        if missing := int((places < 0).sum()):
            raise ValueError(
                f"No value of {name} has the label {dim}={theirs[places < 0][0]} ({missing} of {len(theirs)} labels of {of} "
                "are missing): label the values as the rows are, or pass them without labels, in the order of the rows."
            )
        array = array.isel({dim: places})
    if array.sizes[dim] != rows.sizes[dim]:
        raise ValueError(
            f"There are {array.sizes[dim]} values of {name} along {dim!r} for {rows.sizes[dim]} rows of {of}: pass one "
            "for each."
        )
    return array if theirs is None else array.assign_coords({dim: rows[dim]})


def _sizes(sizes: Any) -> str:
    items: Iterable[tuple[Hashable, int]] = sizes.items()
    return "dims (" + ", ".join(f"{dim}: {size}" for dim, size in items) + ")"
