"""Predictions that can be compared are of the same rows: by number, by label, and by the inputs that trees hold."""

from collections.abc import Iterable

import numpy as np
import xarray as xr

from bnnzoo.trees import SAMPLE_DIMS, Labelled

__all__ = ["refuse_other_rows"]

ROUNDING = 1e-5  # of inputs that one fit held in single precision and the other in double


def refuse_other_rows(
    name: str, tree: Labelled, values: xr.DataArray, reference: str, base_tree: Labelled, base: xr.DataArray
) -> None:
    """Raise unless two trees predict the same rows.

    Parameters
    ----------
    name, reference : str
        What the trees are called.
    tree, base_tree : DataTree, Dataset or DataArray
        Their groups ``predictions_constant_data``, or else ``constant_data``, are compared where both have them.
    values, base : DataArray [chain, draw, obs_id, ...]
        What they predict.

    Raises
    ------
    ValueError
        If sizes, labels or inputs differ.
    """
    sizes, expected = _row_sizes(values), _row_sizes(base)
    if sizes != expected:
        raise ValueError(
            f"{name!r} and the reference {reference!r} predict different observations ({sizes} and {expected}): predict the "
            "same data with each."
        )
    for dim in sizes:
        ours, theirs = values.indexes.get(dim), base.indexes.get(dim)
        if ours is not None and theirs is not None and not ours.equals(theirs):
            first = int(np.argmax(np.asarray(ours != theirs)))
            raise ValueError(
                f"{name!r} and the reference {reference!r} predict different observations (the label at position {first} of "
                f"{dim!r} is {ours[first]} and {theirs[first]}): predict the same data with each, in the same order."
            )
    inputs = _inputs(tree, sizes)
    others = _inputs(base_tree, sizes)
    for variable, each in inputs.data_vars.items():
        if variable in others and not _same(each, others[variable]):
            shapes = f" of shapes {each.shape} and {others[variable].shape}"
            raise ValueError(
                f"{name!r} and the reference {reference!r} predict for different inputs {str(variable)!r}"
                f"{shapes if each.shape != others[variable].shape else ''}: predict the same data with each."
            )


def _row_sizes(values: xr.DataArray) -> dict[str, int]:
    return {str(dim): size for dim, size in values.sizes.items() if dim not in SAMPLE_DIMS}


def _inputs(tree: Labelled, rows: Iterable[str]) -> xr.Dataset:
    """Return the inputs of the rows; arguments that belong to no row may differ between models."""
    for group in ("predictions_constant_data", "constant_data"):
        if isinstance(tree, xr.DataTree) and group in tree.children:
            inputs = tree[group].to_dataset()
            return inputs[[name for name, values in inputs.data_vars.items() if {*values.dims} & {*rows}]]
    return xr.Dataset()


def _same(ours: xr.DataArray, theirs: xr.DataArray) -> bool:
    """Return whether two arrays are equal up to rounding to single precision."""
    if ours.shape != theirs.shape:
        return False
    one, other = ours.to_numpy(), theirs.to_numpy()
    if not (np.issubdtype(one.dtype, np.number) and np.issubdtype(other.dtype, np.number)):
        return bool((one == other).all())
    scale = float(np.nanmax(np.abs(other), initial=0.0))
    return np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * scale, equal_nan=True)
