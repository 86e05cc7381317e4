"""Means over draws in bounded memory, for arrays in memory, in files opened lazily, or in chunks."""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import product

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from bnnzoo.trees.lookup import SAMPLE_DIMS, Labelled, moment, refuse_bad_probs

__all__ = ["average_probs", "draw_means", "draw_variance", "log_mean_exp", "sum_draws", "tiles"]

type Array = NDArray[np.floating]

MIN_TILE_DRAWS = 64  # of an array stored in one piece, so that rows of a draw are read contiguously
TILE_BYTES = 2**22  # of a block of draws and rows: large enough for Python's overhead, small enough for a cache


def average_probs(data: Labelled) -> xr.DataArray:
    """Return the predictive class probabilities ``[obs_id, ..., class_id]``: the average over draws.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs`` of each draw.
    """
    return draw_means(moment(data, "probs"), {"probs": sum_draws}, probs=True)["probs"]


def log_mean_exp(values: xr.DataArray) -> xr.DataArray:
    """Return the logarithm of the average over draws of densities that are given by their logarithms; NaN is left out.

    Examples
    --------
    >>> log_mean_exp(xr.DataArray(np.log([[[0.5], [0.25]]]), dims=("chain", "draw", "obs_id"))).values.round(6)
    array([-0.980829])
    """
    axes, array = tuple(values.dims.index(dim) for dim in SAMPLE_DIMS), values.to_numpy()
    lost = np.isnan(array)
    total = logsumexp(np.where(lost, -np.inf, array), axis=axes)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total - np.log((~lost).sum(axes))
    return values.isel(dict.fromkeys(SAMPLE_DIMS, 0), drop=True).copy(data=mean)


def sum_draws(values: Array) -> Array:
    """Return the sum over the first axis in double precision, without NaN: draws that are lost."""
    total: Array = values.sum(0, dtype=float)
    return np.nansum(values, 0, dtype=float) if np.isnan(total).any() else total


def draw_means(
    array: xr.DataArray,
    features: Mapping[str, Callable[[Array], Array]],
    *,
    probs: bool = False,
    tile_bytes: int = TILE_BYTES,
) -> xr.Dataset:
    """Return means over draws of functions of each draw's values, one block of draws and rows at a time.

    Draws that are lost (NaN) are left out; where all are, the mean is NaN.

    Parameters
    ----------
    array : DataArray [chain, draw, ...]
        In memory, opened lazily, or chunked (dask). Blocks are loaded one at a time, and each of them once.
    features : mapping of str to callable
        Map values ``[draws, rows, ...]`` to sums over draws ``[rows, ...]`` of some function that is 0 for lost ones.
    probs : bool
        Whether to check that the values are probabilities.
    tile_bytes : int
        Size of a block, if the array is not stored in larger chunks.

    Returns
    -------
    Dataset
        In double precision, with the dims and coordinates of ``array`` except chain and draw.

    Examples
    --------
    >>> array = xr.DataArray(np.arange(6.0).reshape(1, 3, 2), dims=("chain", "draw", "obs_id"))
    >>> draw_means(array, {"mean": sum_draws})["mean"].values
    array([2., 3.])
    """
    dims = [dim for dim in array.dims if dim not in SAMPLE_DIMS]
    totals: dict[str, Array] = {}
    counts = np.zeros([array.sizes[dim] for dim in dims])
    for values, rows in tiles(array, tile_bytes):
        if probs:
            refuse_bad_probs(values, str(dims[0]), rows.start)
        counts[rows] += _num_known(values)
        for name, feature in features.items():
            part = feature(values)
            totals.setdefault(name, np.zeros(counts.shape))[rows] += part
    with np.errstate(invalid="ignore"):
        means = {name: (dims, total / counts) for name, total in totals.items()}
    return xr.Dataset(means, coords=_kept_coords(array))


def draw_variance(array: xr.DataArray, *, tile_bytes: int = TILE_BYTES) -> xr.DataArray:
    """Return the variance over the S draws that are not lost (with divisor S), one block of draws and rows at a time.

    Blocks are combined by their means and sums of squared deviations, which avoids cancellation for means far from zero.

    Parameters
    ----------
    array : DataArray [chain, draw, ...]
    tile_bytes : int
        Size of a block, if the array is not stored in larger chunks.

    References
    ----------
    T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample variances,
    1979.

    Examples
    --------
    >>> array = xr.DataArray(1e9 + np.arange(4.0).reshape(1, 4, 1), dims=("chain", "draw", "obs_id"))
    >>> draw_variance(array).values
    array([1.25])
    """
    dims = [dim for dim in array.dims if dim not in SAMPLE_DIMS]
    shape = [array.sizes[dim] for dim in dims]
    mean, squares, count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for values, rows in tiles(array, tile_bytes):
        old, new = count[rows], _num_known(values)
        centre, both = sum_draws(values) / np.maximum(new, 1), np.maximum(old + new, 1)
        shift = centre - mean[rows]
        squares[rows] += sum_draws((values - centre) ** 2) + shift**2 * old * new / both
        mean[rows] += shift * new / both
        count[rows] += new
    with np.errstate(invalid="ignore"):
        return xr.DataArray(squares / count, dims=dims, coords=_kept_coords(array))


def _num_known(values: Array) -> Array:
    """Return how many of the draws along the first axis are not lost."""
    if values.size and not np.isnan(values.max()):  # NaN if any is: a fraction of the time of counting
        return np.full(values.shape[1:], float(len(values)))
    return sum_draws(~np.isnan(values))


def tiles(array: xr.DataArray, tile_bytes: int = TILE_BYTES) -> Iterator[tuple[Array, slice]]:
    """Yield blocks ``[draws, rows, ...]`` and their rows, aligned with the chunks in which an array is stored.

    Parameters
    ----------
    array : DataArray [chain, draw, rows, ...]
        Dims in any order; chain and draw are joined.
    tile_bytes : int
        Size of a block, if the array is not stored in larger chunks.
    """
    kept = [dim for dim in array.dims if dim not in SAMPLE_DIMS]
    order = [array.dims.index(dim) for dim in (*SAMPLE_DIMS, *kept)]
    if 0 in array.shape:
        raise ValueError(f"There is nothing to average: the sizes are {dict(array.sizes)}.")
    # whole stored chunks, up to the size of a block, since reading part of a chunk costs as much as all of it
    rows_dim = kept[0]
    lengths = {"chain": 1, "draw": min(array.sizes["draw"], MIN_TILE_DRAWS), rows_dim: 1} | _stored_chunks(array)
    lengths = {dim: lengths[dim] for dim in ("chain", "draw", rows_dim)}
    others = [size for dim, size in array.sizes.items() if dim not in lengths]
    room = tile_bytes // max(1, array.dtype.itemsize * math.prod([*others, *lengths.values()]))
    for dim in (rows_dim, "draw"):
        times = max(1, min(room, -(-array.sizes[dim] // lengths[dim])))
        lengths[dim] *= times
        room //= times
    for chain, draw, rows in product(*(_slices(array.sizes[dim], length) for dim, length in lengths.items())):
        block = array.isel({"chain": chain, "draw": draw, kept[0]: rows})
        values = block.to_numpy().transpose(order)
        yield values.reshape(-1, *values.shape[2:]), rows


def _stored_chunks(array: xr.DataArray) -> dict[Hashable, int]:
    if array.chunks is not None:
        return {dim: max(chunks) for dim, chunks in zip(array.dims, array.chunks, strict=True)}
    chunks = array.encoding.get("chunksizes") or array.encoding.get("chunks")
    is_lazy = not isinstance(array.variable._data, np.ndarray)
    if not is_lazy or not chunks or len(chunks) != array.ndim:
        return {}
    return dict(zip(array.dims, chunks, strict=True))


def _slices(size: int, length: int) -> list[slice]:
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


def _kept_coords(array: xr.DataArray) -> dict[Hashable, xr.DataArray]:
    return {name: coord for name, coord in array.coords.items() if not set(coord.dims) & set(SAMPLE_DIMS)}
